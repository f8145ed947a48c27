// The cards of guests and hosts, and the dialogs that ask for confirmation.

import { call } from "./api.js";
import { console_view, picture } from "./console.js";
import { button, dialog, facts, fill, h, meter, table } from "./dom.js";
import { clock, counted, size, verbs, verdict } from "./model.js";
import { act, changed, heard_of, state } from "./store.js";

/** Ask for confirmation of an operation that cannot be undone. Returns a promise of the answer. */
export function sure(title, text, word) {
  return new Promise((answer) => {
    let said = false;
    const made = dialog(title, "", h("p", null, text),
      h("footer", null,
        button("Cancel", () => made.close()),
        button(word, () => { said = true; made.close(); }, "danger")));
    made.addEventListener("close", () => answer(said));
  });
}

/** An empty status line. */
export function line() {
  return h("p", { class: "line", role: "status" });
}

/** Show the result of an operation in a status line. */
export function say(element, said) {
  element.textContent = said.comment || "";
  element.classList.toggle("bad", said.result === false);
  element.classList.toggle("good", said.result !== false);
}

const found = (key) => state.hosts.flatMap((one) => one.guests).find((one) => one.key === key);
const moved = (name) => state.hosts.flatMap((one) => one.guests).filter((one) => one.name === name);

/** The card of a guest. move: opens the migration dialog. */
export function guest_card(first, move) {
  let guest = first;
  const about = h("div");
  const actions = h("div", { class: "actions" });
  const said = line();
  const past = h("ol", { class: "past" });
  const layers = h("div", { class: "layers" });
  const screen = h("div", { class: "screen" });
  const made = dialog(first.name, "drawer", about, actions, said, screen,
    h("h3", null, "Disks"), disks(first), h("h3", null, "Network"), nics(first),
    h("h3", null, "Snapshots"), layers, h("h3", null, "Events"), past);

  async function run(verb, label, confirm) {
    if (confirm && !await sure(`${label}: ${guest.name}?`,
      "Data that the guest has not yet written to its disks is lost.", label)) return;
    said.textContent = `${label} …`;
    say(said, await act(verb, guest.name, { name: guest.name }));
  }

  async function purge() {
    const plan = verdict(await call("purge", { name: guest.name, test: true })
      .catch((exc) => ({ [guest.name]: { result: false, comment: exc.message } })), guest.name);
    if (plan.result === false) return say(said, plan);
    if (!await sure(`Purge: ${guest.name}?`, plan.comment, "Purge")) return undefined;
    said.textContent = "Purge …";
    return say(said, await act("purge", guest.name, { name: guest.name }, [], true));
  }

  function reach(kind) {
    made.close();
    console_view(guest, kind);
  }

  async function shoot() {
    said.textContent = "Taking a screenshot …";
    try {
      fill(screen, await picture(guest));
      said.textContent = "";
    } catch (exc) {
      say(said, { result: false, comment: exc.message });
    }
  }

  function draw() {
    const now = found(guest.key) || moved(guest.name).find((one) => one.uuid === guest.uuid);
    guest = now || { ...guest, state: "gone" };
    fill(about,
      h("p", null, h("span", { class: `state ${guest.state}` }, guest.state), ` on ${guest.host}`),
      facts([
        ["vCPUs", guest.vcpus], ["Memory", size(guest.memory)],
        ["Memory now", guest.memory_now < guest.memory ? size(guest.memory_now) : null],
        ["UUID", guest.uuid], ["Display", display(guest.graphics)],
        ["At the next start", guest.pending && guest.pending.join(", ")],
      ]));
    const focused = actions.contains(document.activeElement) ? document.activeElement.textContent : null;
    fill(actions, guest.state === "gone" ? null : [
      verbs(guest.state).map(([verb, label, kind, confirm]) => (
        button(label, () => run(verb, label, confirm), kind))),
      guest.state === "shutdown" || guest.state === "crashed" ? null : [
        display(guest.graphics) ? [button("Screen", () => reach("display")), button("Picture", shoot)] : null,
        button("Serial console", () => reach("serial")),
      ],
      button("Migrate…", () => move(guest)),
      button("Back up", () => run("backup", "Back up", false)),
      guest.state === "shutdown" ? button("Purge…", purge, "danger") : null,
    ]);
    if (focused) {
      const again = [...actions.children].find((one) => one.textContent === focused);
      (again || actions.querySelector("button") || made).focus();
    }
    history();
  }

  function history() {
    const all = heard_of(guest.name);
    fill(past, all.length ? all.map((one) => h("li", null,
      h("time", null, clock(one.at)), ` ${one.operation}: ${one.text}`))
      : h("li", { class: "none" }, "no events since the page was opened"));
  }

  changed.addEventListener("cloud", draw);
  changed.addEventListener("jobs", history);
  made.addEventListener("close", () => {
    changed.removeEventListener("cloud", draw);
    changed.removeEventListener("jobs", history);
  });
  snapshots(layers, () => guest, said);
  draw();
  return made;
}

function display(graphics) {
  const kind = graphics.type;
  return kind && kind !== "None" ? `${kind} ${graphics.port || ""}`.trim() : null;
}

function disks(guest) {
  const rows = Object.entries(guest.disks).map(([name, one]) => [
    name, one["virtual size"] ? size(Number(one["virtual size"]) / 1024 ** 2) : "",
    String(one["file format"] || one.type || ""), h("code", null, String(one.file || one.source || "")),
  ]);
  return rows.length ? table([["disk", "size", "format", "file"], ...rows], `Disks of ${guest.name}`)
    : h("p", { class: "none" }, "none");
}

function nics(guest) {
  const rows = Object.entries(guest.nics).map(([mac, one]) => [
    h("code", null, mac), Object.values(one.source || {}).join(" "), String(one.type || ""),
    String(one.model || ""),
  ]);
  return rows.length ? table([["address", "network", "kind", "model"], ...rows], `Network of ${guest.name}`)
    : h("p", { class: "none" }, "none");
}

function snapshots(place, guest, said) {
  const name = h("input", { "aria-label": "Name of the new snapshot", placeholder: "name, or empty" });
  const list = h("ul", { class: "plain" });

  async function take() {
    said.textContent = "Taking a snapshot …";
    const given = name.value.trim();
    say(said, await act("snapshot", guest().name, { name: guest().name, ...(given ? { snapshot: given } : {}) }, [], true));
    show();
  }

  async function back(one) {
    if (!await sure(`Revert to ${one}?`, `All changes of ${guest().name} since this snapshot are lost.`, "Revert")) return;
    said.textContent = "Reverting …";
    say(said, await act("revert", guest().name, { name: guest().name, snapshot: one }, [], true));
    show();
  }

  async function remove(one) {
    if (!await sure(`Delete ${one}?`, "The guest and its disks do not change.", "Delete")) return;
    said.textContent = "Deleting …";
    say(said, await act("delete_snapshots", guest().name, {}, [guest().name, one], true));
    show();
  }

  async function show() {
    fill(list, h("li", { class: "none" }, "…"));
    let answer;
    try {
      answer = verdict(await call("snapshots", { name: guest().name }), guest().name);
    } catch (exc) {
      answer = { result: false, comment: exc.message };
    }
    const known = snapshots_in(answer);
    fill(list, known.length ? known.map((one) => h("li", null, h("span", null, one.name),
      h("small", null, snapshot_words(one)),
      button("Revert…", () => back(one.name)), button("Delete…", () => remove(one.name), "danger")))
      : h("li", { class: "none" }, answer.result === false ? answer.comment : "none"));
  }

  fill(place, h("div", { class: "actions" }, name, button("Take snapshot", take), button("Show", show)), list);
}

/** The snapshots in the answer of virt.snapshots. */
export function snapshots_in(answer) {
  const list = answer && answer.snapshots;
  return Array.isArray(list) ? list.filter((one) => one && typeof one === "object") : [];
}

/** The time of a snapshot, its kind and its parent. */
export function snapshot_words(one) {
  const words = [one.created, one.external ? "external" : "internal", one.parent ? `child of ${one.parent}` : "",
    one.current ? "current" : ""];
  return words.filter(Boolean).map(String).join(", ");
}

/** The card of a host. on_guest: opens a guest's card. */
export function host_card(first, on_guest) {
  const body = h("div");
  const said = line();
  const plan = h("div");
  const reason = h("input", { id: "reason", placeholder: "reason", "aria-label": "Reason" });
  const act_on = h("div", { class: "actions" });
  const made = dialog(first.name, "drawer", body, act_on, said, plan);

  async function evacuate() {
    said.textContent = "Planning the evacuation …";
    fill(plan);
    const would = await tried("evacuate", { host: first.name, test: true });
    say(said, would);
    if (would.result === false) return;
    fill(plan, would.table ? table(would.table, "Planned migrations") : null,
      h("div", { class: "actions" }, reason, button(`Evacuate ${first.name}`, async () => {
        fill(plan);
        said.textContent = `Evacuating ${first.name} …`;
        const kwarg = { host: first.name, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) };
        const end = await act("evacuate", first.name, kwarg, [], true);
        say(said, end);
        if (end.left && Object.keys(end.left).length) {
          fill(plan, table([["guest", "reason"], ...Object.entries(end.left).map(([a, b]) => [a, String(b)])], "Guests that remain"));
        }
      }, "danger")));
    reason.focus();
  }

  async function restore() {
    said.textContent = "Migrating the guests back …";
    say(said, await act("restore", first.name, { host: first.name }, [], true));
  }

  async function tried(fun, kwarg) {
    try {
      return verdict(await call(fun, kwarg), first.name);
    } catch (exc) {
      return { result: false, comment: exc.message };
    }
  }

  function draw() {
    const host = state.hosts.find((one) => one.name === first.name) || first;
    fill(body,
      host.error ? h("p", { class: "line bad" }, host.error) : null,
      host.maintenance ? h("p", { class: "line bad" }, `in maintenance: ${host.maintenance}`) : null,
      h("div", { class: "meters" },
        meter("memory", host.memory_used / host.memory, `${size(host.memory_used)} of ${size(host.memory)} allocated`),
        meter("vCPUs", host.vcpus_used / host.vcpus, `${host.vcpus_used} of ${host.vcpus} allocated`),
        host.disk === null ? null : meter("disk", host.disk_used / host.disk, `${size(host.disk_used * 1024)} of ${size(host.disk * 1024)}`)),
      facts([["CPUs", host.cpus], ["Memory", size(host.physical)], ["Guests", `${host.running} of ${counted(host.guests.length, "guest")} running`],
        ["Hypervisors", host.types.join(", ")]]),
      h("ul", { class: "chips" }, host.guests.map((one) => h("li", null,
        button(one.name, () => { made.close(); on_guest(one); }, "chip")))));
    fill(act_on, button("Evacuate…", evacuate),
      host.maintenance ? button("End maintenance", restore, "primary") : null);
  }

  changed.addEventListener("cloud", draw);
  made.addEventListener("close", () => changed.removeEventListener("cloud", draw));
  draw();
  return made;
}
