// A guest: its state, its operations, and tabs with the rest. Each tab is a function of the guest's
// page that returns an element, `draw(guest, info)` and optionally `show()`.

import { call, LoggedOut } from "./api.js";
import { console_view } from "./console.js";
import { button, fill, h, line, say, sure, update } from "./dom.js";
import { backups_tab } from "./guest_backups.js";
import { history_tab } from "./guest_history.js";
import { hardware_tab } from "./guest_hardware.js";
import { overview_tab } from "./guest_overview.js";
import { rights_tab } from "./guest_rights.js";
import { snapshots_tab } from "./guest_snapshots.js";
import { is_on, verbs, verdict } from "./model.js";
import { field, plan_dialog } from "./plan.js";
import * as records from "./records.js";
import { may, rights_print } from "./rights.js";
import { go, href } from "./router.js";
import { act, changed, state } from "./store.js";
import { sample } from "./usage.js";

const TABS = {
  overview: ["Overview", overview_tab], hardware: ["Hardware", hardware_tab],
  snapshots: ["Snapshots", snapshots_tab], backups: ["Backups", backups_tab], history: ["History", history_tab],
  rights: ["Rights", rights_tab],
};
const STALE_MS = 20000;

const named = (name) => state.hosts.flatMap((one) => one.guests).filter((one) => one.name === name);
const lost_on = (name) => state.hosts.find((one) => one.last_seen.guests.includes(name));

/** Whether the guest has a graphical display, as text; null: it has none. */
export function display(graphics) {
  const kind = graphics.type;
  return kind && kind !== "None" ? `${kind} ${graphics.port || ""}`.trim() : null;
}

/** The view. */
export function guest_view(page) {
  let name = "";
  let tab = "overview";
  let guest = null;
  let info = null;
  let info_at = 0;
  let tabs = new Map();
  let offered = "";
  const heading = h("h2", { tabindex: "-1" });
  const about = h("div", { class: "about" });
  const actions = h("div", { class: "actions" });
  const said = line();
  const list = h("nav", { class: "tabs", "aria-label": "Parts of the guest" });
  const body = h("div", { class: "tab" });
  const element = h("article", { class: "guest-page" },
    h("p", { class: "crumbs" }, h("a", { href: href("guests") }, "Guests")), h("header", null, heading, about), actions, said, list, body);

  const context = {
    get guest() { return guest; },
    get info() { return info; },
    page, said, change, refresh: () => { info_at = 0; return look(); },
  };

  /** Run an operation, and show its outcome. */
  async function change(verb, kwarg = {}, arg = [], long = false, label = "") {
    say(said, { comment: `${label || verb} …` });
    const outcome = await act(verb, guest.name, arg.length ? kwarg : { name: guest.name, ...kwarg }, arg, long);
    say(said, outcome);
    context.refresh();
    return outcome;
  }

  async function run(verb, label, confirm) {
    if (confirm && !await sure(`${label}: ${guest.name}?`,
      "Data that the guest has not yet written to its disks is lost.", label)) return;
    change(verb, {}, [], false, label);
  }

  async function purge() {
    const of = name;
    const plan = await tried("purge", { test: true });
    if (of !== name || !element.isConnected) return;
    if (plan.result === false) { say(said, plan); return; }
    if (!await sure(`Purge: ${guest.name}?`, plan.comment, "Purge")) return;
    const outcome = await change("purge", {}, [], true, "Purge");
    if (outcome.result !== false) go("guests");
  }

  async function tried(verb, kwarg) {
    return call(verb, { name: guest.name, ...kwarg }).then((data) => verdict(data, guest.name))
      .catch((exc) => ({ result: false, comment: exc.message }));
  }

  /** Ask for a new name, check the operation, and run it. */
  function ask_name(verb, title, text) {
    const given = field("new-name", "New name", { value: verb === "clone" ? `${guest.name}-copy` : guest.name, help: "also the minion id" });
    const made = plan_dialog({
      title: `${title}: ${guest.name}`, word: title, text, name: guest.name, fields: [given], given: () => [verb, { new: given.value }],
      run: async (_verb, kwarg) => {
        const outcome = await change(verb, kwarg, [], true, title);
        if (outcome.result !== false) go("guest", kwarg.new);
      },
    });
    given.input.select();
    return made;
  }

  /** The operations that are possible in the guest's state. */
  function possible() {
    const on = is_on(guest.state);
    if (guest.state === "creating") return [];
    return [
      guest.state === "running" && may("reboot") ? button("Reboot", () => change("reboot", {}, [], true, "Reboot")) : null,
      verbs(guest.state).filter(([verb]) => may(verb)).map(([verb, label, kind, confirm]) => button(label, () => run(verb, label, confirm), kind)),
      on && may("ticket") ? [display(guest.graphics) ? button("Screen", () => console_view(guest, "display")) : null,
        button("Serial console", () => console_view(guest, "serial"))] : null,
      state.hosts.length > 1 && may("migrate") ? button("Migrate…", () => page.move(guest)) : null,
      records.records.may_back_up && may("backup") ? button("Back up", () => change("backup", {}, [], true, "Back up")) : null,
      guest.autostart === null || !may("autostart") ? null : button(guest.autostart ? "Autostart off" : "Autostart on",
        () => change("autostart", { enabled: !guest.autostart }, [], false, "Autostart")),
      on ? null : [
        !may("rename") ? null : button("Rename…", () => ask_name("rename", "Rename", "The definition, the disk files and the minion's identity get the new name.")),
        !may("clone") ? null : button("Clone…", () => ask_name("clone", "Clone", "The clone is another guest on the same host, with disks and an identity of its own.")),
        !may("purge") ? null : button("Purge…", purge, "danger"),
      ],
    ];
  }

  function draw_actions() {
    const print = JSON.stringify([guest.name, guest.state, guest.autostart, display(guest.graphics), state.hosts.length > 1, records.records.may_back_up, rights_print()]);
    if (print === offered && actions.childElementCount) return;
    offered = print;
    const focused = actions.contains(document.activeElement) ? document.activeElement.textContent : null;
    fill(actions, guest.state === "gone" ? null : possible());
    if (!focused) return;
    const again = [...actions.children].find((one) => one.textContent === focused);
    (again || actions.querySelector("button") || heading).focus();
  }

  function draw() {
    if (!name) return;
    const found = named(name);
    const now = found.find((one) => guest && one.uuid === guest.uuid) || found.find((one) => is_on(one.state)) || found[0];
    const elsewhere = !now && guest && state.hosts.flatMap((one) => one.guests).find((one) => one.uuid === guest.uuid);
    if (elsewhere) { go("guest", elsewhere.name, ...(tab === "overview" ? [] : [tab])); return; }
    heading.textContent = name;
    if (!now && !guest) { missing(); return; }
    guest = now || { ...guest, state: "gone" };
    update(about, h("span", { class: `state ${guest.state}` }, guest.state), " on ",
      h("a", { href: href("host", guest.host) }, guest.host),
      guest.pending.length ? h("span", { class: "badge warn" }, "changes at the next start") : null,
      found.length > 1 ? h("span", { class: "badge bad" }, `also on ${found.filter((one) => one !== now).map((one) => one.host).join(", ")}`) : null);
    draw_actions();
    const shown = opened();
    if (!shown.element.isConnected) fill(body, shown.element);
    shown.draw(guest, info);
    for (const one of [look(), sample(), records.look()]) one.catch((exc) => { if (exc instanceof LoggedOut) page.ended(exc.message); });
  }

  function missing() {
    const host = lost_on(name);
    fill(actions);
    fill(body, state.at ? h("p", { class: "empty" }, host
      ? `${name} was last seen on ${host.name}, which does not respond (since ${host.last_seen.at}). Its state is unknown.`
      : `No guest ${name} on any host that responds.`) : h("p", { class: "empty" }, "Querying all hosts …"));
  }

  function opened() {
    if (!tabs.has(tab)) {
      const made = TABS[tab][1](context);
      tabs.set(tab, made);
      if (made.show) made.show();
    }
    return tabs.get(tab);
  }

  /** Query what the list of guests does not have. */
  async function look() {
    if (!guest || guest.state === "gone" || Date.now() - info_at < STALE_MS) return;
    info_at = Date.now();
    const of = guest;
    try {
      const data = await call("vm_info", { name: of.name });
      const found = Object.values(data || {}).map((one) => one && one[of.name]).find((one) => one && typeof one === "object");
      if (of.name !== name) return;
      info = found || info;
    } catch {
      return; // the list of guests has the essential values
    }
    if (element.isConnected && guest && guest.name === of.name) opened().draw(guest, info);
  }

  function leave() {
    for (const one of tabs.values()) if (one.leave) one.leave();
    tabs = new Map();
  }

  const jobs = () => { if (element.isConnected && guest && tabs.has("history")) tabs.get("history").draw(guest, info); };
  changed.addEventListener("jobs", jobs);

  return {
    element, draw,
    leave,
    show([wanted = "", part = "overview"]) {
      if (wanted !== name) {
        leave();
        [name, guest, info, info_at] = [wanted, null, null, 0];
        fill(about);
        fill(body);
        say(said, { comment: "" });
      }
      tab = Object.hasOwn(TABS, part) ? part : "overview";
      update(list, Object.entries(TABS).filter(([key]) => key === tab || may({ snapshots: "snapshots", backups: "backups", history: "log" }[key] || "query")).map(([key, [label]]) => h("a", {
        href: href("guest", name, ...(key === "overview" ? [] : [key])), "aria-current": key === tab ? "page" : null,
      }, label)));
      fill(body);
      const there = tabs.get(tab);
      if (there && there.show && guest) there.show();
    },
  };
}
