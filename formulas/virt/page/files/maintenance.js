// Maintenance of hosts: no new guests, evacuation, and the return of the guests.

import { call, LoggedOut } from "./api.js";
import { button, dialog, fill, h, hold, line, say, table } from "./dom.js";
import { counted, fits, verdict } from "./model.js";
import { may } from "./rights.js";
import { href } from "./router.js";
import { empty } from "./sheet.js";
import { act, state } from "./store.js";

/** The view. */
export function maintenance_view(page) {
  const element = h("section", { class: "sheet" });
  const body = h("div");
  fill(element, h("header", null, h("h3", null, "Maintenance")),
    h("p", { class: "none" }, "A host in maintenance gets no new guests. Evacuating it also migrates its guests to other hosts; they return with ", h("em", null, "Migrate back"), "."),
    body);
  let drawn = "";

  function draw(hosts, words) {
    const shown = hosts.filter((one) => !words || fits(words, one.name, one.maintenance));
    const key = JSON.stringify(shown.map((one) => [one.name, one.maintenance, one.error, one.guests.length, one.running]));
    if (key === drawn) return;
    drawn = key;
    if (!hosts.length) {
      fill(body, state.at ? empty("No hosts", "No minion matches virt:hosts of the master's configuration.") : h("p", { class: "none" }, "Querying …"));
      return;
    }
    hold(body, () => fill(body, table([["host", "state", "guests", ""], ...shown.map((host) => row(host, page))], "Hosts and their maintenance")));
  }

  return { element, draw };
}

function row(host, page) {
  const name = h("a", { href: href("host", host.name), "data-name": `host ${host.name}` }, host.name);
  const guests = `${host.running} of ${counted(host.guests.length, "guest")} running`;
  if (host.error) return [name, h("span", { class: "badge bad" }, "not responding"), "", host.error];
  const actions = host.maintenance ? [
    button("End maintenance…", () => maintenance_dialog(host, false, page), "", { "data-name": `off ${host.name}` }),
    button("Migrate back…", () => plan_dialog("restore", host, page), "", { "data-name": `restore ${host.name}` }),
  ] : [
    button("Start maintenance…", () => maintenance_dialog(host, true, page), "", { "data-name": `on ${host.name}` }),
  ];
  return [name, host.maintenance ? [h("span", { class: "badge warn" }, "in maintenance"), ` ${host.maintenance}`] : h("span", { class: "badge good" }, "in service"),
    guests, h("div", { class: "actions" }, actions, host.guests.length && may("evacuate") ? button("Evacuate…", () => plan_dialog("evacuate", host, page), "danger", { "data-name": `evacuate ${host.name}` }) : null)];
}

function maintenance_dialog(host, on, page) {
  const said = line();
  const reason = h("input", { id: "why", autocomplete: "off", placeholder: "new disks" });
  const word = on ? "Start maintenance" : "End maintenance";
  const go = button(word, change, "primary");
  const made = dialog(`${word} of ${host.name}`, "",
    h("p", null, on ? "It gets no new guests. Its guests stay where they are." : "It gets new guests again. Guests that were migrated away stay where they are."),
    on ? h("div", { class: "field" }, h("label", { for: "why" }, "Reason"), reason) : null, said,
    h("footer", null, button("Cancel", () => made.close()), go));
  if (on) reason.focus();
  preview(said, go, "maintenance", given(), host.name, page);

  function given() {
    const text = reason.value.trim();
    return { host: host.name, state: on ? "on" : "off", ...(on && text ? { reason: text } : {}) };
  }

  async function change() {
    go.disabled = true;
    const end = await act("maintenance", host.name, given());
    say(said, end);
    go.disabled = false;
    if (end.result !== false) made.close();
  }
}

/** Show the plan of an evacuation or of the return, and carry it out. */
function plan_dialog(fun, host, page) {
  const words = fun === "evacuate" ? "Evacuate" : "Migrate the guests back to";
  const said = line();
  const plan = h("div");
  const reason = h("input", { id: "why", autocomplete: "off", placeholder: "evacuated" });
  const go = button(fun === "evacuate" ? `Evacuate ${host.name}` : "Migrate back", run, fun === "evacuate" ? "danger" : "primary");
  go.disabled = true;
  const made = dialog(`${words} ${host.name}`, "wide", said, plan,
    fun === "evacuate" ? h("div", { class: "field" }, h("label", { for: "why" }, "Reason"), reason) : null,
    h("footer", null, button("Cancel", () => made.close()), go));
  preview(said, go, fun, { host: host.name }, host.name, page, (would) => {
    fill(plan, Array.isArray(would.table) && would.table.length > 1 ? table(would.table, "Planned migrations") : null);
  });

  function run() {
    const text = reason.value.trim();
    made.close();
    act(fun, host.name, { host: host.name, ...(text ? { reason: text } : {}) }, [], true);
  }
}

/** Show what an operation would do; its button is enabled unless the operation is refused. A plan
 * that leaves something is a warning. */
async function preview(said, go, fun, kwarg, about, page, more = () => {}) {
  said.textContent = "Checking …";
  try {
    const data = await call(fun, { ...kwarg, test: true });
    const would = verdict(data, about);
    say(said, would);
    const left = would.left && Object.keys(would.left).length;
    if (would.result !== false && (left || data.retcode)) said.className = "line warn";
    go.disabled = would.result === false;
    more(would);
  } catch (exc) {
    if (exc instanceof LoggedOut) page.ended(exc.message);
    else say(said, { result: false, comment: exc.message });
  }
}
