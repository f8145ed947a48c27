// The migration of a guest, which is checked before it starts.

import { call } from "./api.js";
import { button, dialog, fill, h, line, say, table } from "./dom.js";
import { size, verdict } from "./model.js";
import { act, state } from "./store.js";

const STALE_MS = 20000;
const known = new Map();

/** Whether a guest can migrate to a host: a promise of {ok, text}, which is cached for a while. */
export function may_go(guest, host) {
  const key = `${guest.key} ${host.name}`;
  const there = known.get(key);
  if (there && Date.now() - there.at < STALE_MS) return there.found;
  const found = call("migratable", { name: guest.name, target: host.name })
    .then((data) => verdict(data, guest.name))
    .then((one) => ({ ok: one.result !== false, text: one.comment || "" }))
    .catch((exc) => ({ ok: false, text: exc.message }));
  known.set(key, { at: Date.now(), found });
  return found;
}

/** The dialog that migrates a guest. target: name of the selected host, or "". */
export function move_dialog(guest, target = "") {
  const others = state.hosts.filter((one) => one.name !== guest.host && !one.error);
  const choice = h("select", { id: "target" },
    h("option", { value: "" }, "automatic"),
    others.map((one) => h("option", { value: one.name },
      `${one.name} – ${size(Math.max(0, one.memory - one.memory_used))} free${one.maintenance ? ", maintenance" : ""}`)));
  choice.value = target;
  const said = line();
  const more = h("div");
  const go = button("Migrate", run, "primary");
  const made = dialog(`Migrate ${guest.name}`, "",
    h("p", null, `${guest.name} is ${guest.state} on ${guest.host}.`),
    h("label", { for: "target" }, "To"), choice, said, more,
    h("footer", null, button("Cancel", () => made.close()), go));
  choice.addEventListener("change", check);
  let turn = 0;

  async function check() {
    const mine = turn += 1;
    go.disabled = true;
    fill(more);
    said.className = "line";
    said.textContent = "Checking the migration …";
    const kwarg = { name: guest.name, target: choice.value, test: true };
    const plan = await call("migrate", kwarg).then((data) => verdict(data, guest.name))
      .catch((exc) => ({ result: false, comment: exc.message }));
    if (mine !== turn) return;
    say(said, plan);
    if (Array.isArray(plan.table)) fill(more, table(plan.table, "Results of the check"));
    go.disabled = plan.result === false;
    if (!go.disabled) go.focus();
  }

  function run() {
    made.close();
    act("migrate", guest.name, { name: guest.name, target: choice.value }, [], true);
  }

  check();
  return made;
}
