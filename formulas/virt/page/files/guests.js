// The guests as a table: columns to select and sort, filters, and operations of several guests.

import { LoggedOut } from "./api.js";
import { button, dialog, fill, h, hold, keep as keep_rows, save, saved, sure, table } from "./dom.js";
import { age, bytes, counted, fits, is_on, natural, number, size } from "./model.js";
import { look, records } from "./records.js";
import { may } from "./rights.js";
import { href, here, keep } from "./router.js";
import { act } from "./store.js";
import { guest_usage, latest, sample } from "./usage.js";

const MORE_ROWS = 100;
const KEY = "salt-virt-guest-columns";

/** Columns: [label, value to sort by, content, whether it is shown by default]. */
const COLUMNS = {
  state: ["state", (one) => one.state, (one) => h("span", { class: `state ${one.lost ? "lost" : one.state}`, title: one.lost ? `since ${one.lost}` : null }, one.state), true],
  host: ["host", (one) => one.host, (one) => (one.lost ? `${one.host}, which does not respond` : one.host), true],
  address: ["address", (one) => one.addresses[0] || "", (one) => h("span", { title: one.addresses.join("\n") }, one.addresses[0] || "",
    one.addresses.length > 1 ? h("small", null, ` +${one.addresses.length - 1}`) : null), true],
  vcpus: ["vCPUs", (one) => one.vcpus, (one) => (one.lost ? "" : one.vcpus), true],
  cpu: ["CPU", (one) => used(one, "cpu_percent"), (one) => percent(used(one, "cpu_percent")), true],
  memory: ["memory", (one) => one.memory, (one) => (one.lost ? "" : size(one.memory)), true],
  memory_used: ["memory used", (one) => used(one, "memory_used_bytes"), (one) => (used(one, "memory_used_bytes") < 0 ? "" : bytes(used(one, "memory_used_bytes"))), false],
  owner: ["owner", (one) => one.owner, (one) => one.owner, true],
  labels: ["labels", (one) => one.labels.join(" "), (one) => one.labels.map((text) => h("span", { class: "badge" }, text)), true],
  backup: ["last backup", (one) => (one.backup ? one.backup.at : ""), (one) => (one.backup ? h("span", { title: one.backup.at }, one.backup.age_s === null ? one.backup.at : `${age(one.backup.age_s)} ago`) : ""), true],
  autostart: ["autostart", (one) => String(one.autostart), (one) => (one.autostart === null ? "" : one.autostart ? "on" : "off"), false],
  pending: ["at the next start", (one) => one.pending.length, (one) => one.pending.join(", "), false],
};
const NUMBERS = new Set(["vcpus", "cpu", "memory", "memory_used"]);

const used = (one, what) => {
  const now = one.state === "running" ? latest(guest_usage(one.key)) : null;
  return now && now[what] !== null && now[what] !== undefined ? number(now[what]) : -1;
};
const percent = (value) => (value < 0 ? "" : `${Math.round(value)} %`);

/** Operations of several guests: verb to [label, whether a state permits it, long, question]. */
const BULK = {
  start: ["Start", (state) => !is_on(state), false, ""],
  shutdown: ["Shut down", (state) => state === "running", true, ""],
  pause: ["Pause", (state) => state === "running", false, ""],
  resume: ["Resume", (state) => state === "paused", false, ""],
  force_off: ["Power off", is_on, false, "Data that the guests have not yet written to their disks is lost."],
  snapshot: ["Take snapshot", () => true, true, ""],
  backup: ["Back up", () => true, true, ""],
  migrate: ["Migrate", is_on, true, "Each guest migrates to the host with the most free capacity."],
  purge: ["Purge", (state) => !is_on(state), true, "The guests and their disks are deleted. This cannot be undone."],
};

const lost_of = (host) => host.last_seen.guests.map((name) => ({
  name, host: host.name, key: `${host.name}/${name}`, state: "last seen", lost: host.last_seen.at || "unknown",
  addresses: [], pending: [], vcpus: 0, memory: 0, autostart: null,
}));

function all_guests(hosts) {
  return hosts.flatMap((one) => [...one.guests, ...lost_of(one)]).map((one) => ({
    ...one, owner: records.owner.get(one.name) || "", labels: records.labels.get(one.name) || [],
    backup: records.backups.get(one.name) || null,
  }));
}

/** The columns that the user has selected. */
function selected_columns() {
  const known = String(saved(KEY) || "").split(" ").filter((name) => Object.hasOwn(COLUMNS, name));
  return known.length ? known : Object.keys(COLUMNS).filter((name) => COLUMNS[name][3]);
}

/** A choice of values that the rows have; it keeps its value in the address. */
function filter(name, label, change) {
  const made = h("select", { id: `filter-${name}`, onchange: () => { keep(name, made.value); change(); } });
  let had = "";
  return {
    element: h("span", { class: "choice" }, h("label", { for: `filter-${name}` }, label), made),
    get value() { return made.value; },
    offer(values) {
      const wanted = made.value || here().query.get(name) || "";
      const all = [...new Set([...values, ...(wanted ? [wanted] : [])])].filter(Boolean).sort(natural);
      if (had !== JSON.stringify(all)) fill(made, h("option", { value: "" }, "all"), all.map((one) => h("option", { value: one }, one)));
      had = JSON.stringify(all);
      made.value = wanted;
    },
    set(value) {
      made.value = "";
      if (value) this.offer([value]);
    },
  };
}

/** The view. */
export function guests_view(page) {
  const chosen = new Set();
  const every = h("input", { type: "checkbox", "aria-label": "Select all guests of the table", "data-name": "every", onchange: select_all });
  const head = h("tr");
  const body = h("tbody");
  const grid = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Guests" }, h("table", { class: "guests" },
    h("caption", { class: "hidden" }, "Guests"), h("thead", null, head), body));
  const note = h("div");
  const rows = new Map();
  const place = h("div", null, grid, note);
  const picked = h("div", { class: "picked", role: "region", "aria-label": "Operations of the selected guests", hidden: true });
  let [hosts, words, limit] = [[], "", MORE_ROWS];
  let [found, headed] = [[], ""];
  let columns = selected_columns();
  let sort = { by: "name", down: false };
  const again = () => draw(hosts, words);
  const filters = Object.entries({ state: "State", host: "Host", owner: "Owner", label: "Label" })
    .map(([name, label]) => [name, filter(name, label, again)]);
  const element = h("div", null, h("div", { class: "tools" }, filters.map(([, one]) => one.element), column_menu()), picked, place);

  function column_menu() {
    const ticks = Object.entries(COLUMNS).map(([name, [label]]) => {
      const box = h("input", { type: "checkbox", checked: columns.includes(name), onchange: () => {
        columns = Object.keys(COLUMNS).filter((one) => (one === name ? box.checked : columns.includes(one)));
        save(KEY, columns.join(" "));
        again();
      } });
      return h("label", { class: "tick" }, box, label);
    });
    const made = h("details", { class: "columns" }, h("summary", null, "Columns"), h("div", null, ticks));
    made.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !made.open) return;
      made.open = false;
      made.querySelector("summary").focus();
    });
    return made;
  }

  function fitting(all) {
    const wanted = Object.fromEntries(filters.map(([name, one]) => [name, one.value]));
    return all.filter((one) => (!words || fits(words, one.name, one.host, one.state, one.owner, ...one.labels, ...one.addresses))
      && (!wanted.state || one.state === wanted.state) && (!wanted.host || one.host === wanted.host)
      && (!wanted.owner || one.owner === wanted.owner) && (!wanted.label || one.labels.includes(wanted.label)));
  }

  function sorted(rows) {
    const read = sort.by === "name" ? (one) => one.name : COLUMNS[sort.by][1];
    const compare = (a, b) => {
      const [x, y] = [read(a), read(b)];
      return (typeof x === "number" ? x - y : natural(x, y)) || natural(a.name, b.name);
    };
    return rows.sort((a, b) => (sort.down ? compare(b, a) : compare(a, b)));
  }

  function header(name, label) {
    const is_sorted = sort.by === name;
    return h("th", {
      scope: "col", class: NUMBERS.has(name) ? "number-column" : null,
      "aria-sort": is_sorted ? (sort.down ? "descending" : "ascending") : null,
    }, button(label, () => {
      sort = { by: name, down: is_sorted ? !sort.down : NUMBERS.has(name) };
      keep("sort", `${sort.down ? "-" : ""}${name}`);
      again();
    }, "plain", { "data-name": `sort ${name}` }), h("span", { class: "arrow", "aria-hidden": "true" }, is_sorted ? (sort.down ? "▾" : "▴") : ""));
  }

  function row(one) {
    const box = h("input", { type: "checkbox", value: one.key, disabled: Boolean(one.lost), "aria-label": `Select ${one.name}`, "data-name": `box ${one.key}`, onchange: () => {
      if (box.checked) chosen.add(one.key);
      else chosen.delete(one.key);
      draw_head();
      draw_picked();
    } });
    const name = one.lost ? one.name : h("a", { href: href("guest", one.name), "data-name": one.key }, one.name);
    return h("tr", null, h("td", { class: "tick-column" }, box),
      h("th", { scope: "row" }, name, one.pending.length ? h("span", { class: "badge warn", title: one.pending.join("\n") }, "restart") : null),
      columns.map((column) => h("td", { class: NUMBERS.has(column) ? "number-column" : null }, COLUMNS[column][2](one))));
  }

  function draw(now, search) {
    if (search !== words) limit = MORE_ROWS;
    [hosts, words] = [now, search];
    for (const one of [sample(), look()]) one.catch((exc) => { if (exc instanceof LoggedOut) page.ended(exc.message); });
    const all = all_guests(hosts);
    const values = { state: (one) => [one.state], host: (one) => [one.host], owner: (one) => [one.owner], label: (one) => one.labels };
    for (const [name, one] of filters) one.offer(all.flatMap(values[name]));
    for (const key of chosen) if (!all.some((one) => one.key === key && !one.lost)) chosen.delete(key);
    found = sorted(fitting(all));
    grid.hidden = !all.length;
    hold(place, () => {
      draw_head();
      keep_rows(body, rows, found.slice(0, limit).map((one) => [one.key, JSON.stringify([one, columns, used(one, "cpu_percent"), used(one, "memory_used_bytes")]), () => row(one)]));
    });
    for (const box of body.querySelectorAll("input")) box.checked = chosen.has(box.value);
    fill(note, all.length ? rest() : empty());
    draw_picked();
  }

  function draw_head() {
    const print = JSON.stringify([columns, sort]);
    if (print !== headed) fill(head, h("td", { class: "tick-column" }, every), header("name", "guest"), columns.map((name) => header(name, COLUMNS[name][0])));
    headed = print;
    const able = found.filter((one) => !one.lost);
    every.checked = able.length > 0 && able.every((one) => chosen.has(one.key));
  }

  function select_all() {
    for (const one of found.filter((each) => !each.lost)) if (every.checked) chosen.add(one.key); else chosen.delete(one.key);
    again();
  }

  function rest() {
    if (!found.length) return h("p", { class: "empty" }, "No guest fits the search and the filters.");
    if (found.length <= limit) return null;
    return h("p", { class: "line" }, `${limit} of ${counted(found.length, "guest")} `,
      button("Show more", () => { limit += MORE_ROWS; again(); }));
  }

  const empty = () => h("p", { class: "empty" }, hosts.length ? "No guests yet. Create the first one with Deploy, or with salt-run virt.init on the master." : "");

  function draw_picked() {
    const some = all_guests(hosts).filter((one) => chosen.has(one.key));
    picked.hidden = !some.length;
    if (!some.length) return;
    const held = picked.contains(document.activeElement) ? document.activeElement.textContent : null;
    fill(picked, h("strong", { role: "status" }, `${counted(some.length, "guest")} selected`),
      Object.entries(BULK).filter(([verb, [, is_possible]]) => may(verb) && some.every((one) => is_possible(one.state)) && (verb !== "backup" || records.may_back_up) && (verb !== "migrate" || hosts.length > 1))
        .map(([verb, [label, , , question]]) => button(question ? `${label}…` : label, () => run(verb, some), ["force_off", "purge"].includes(verb) ? "danger" : "")),
      button("Clear selection", () => { chosen.clear(); again(); }, "quiet"));
    if (held) ([...picked.querySelectorAll("button")].find((one) => one.textContent === held) || picked.querySelector("button")).focus();
  }

  async function run(verb, some) {
    const [label, , long, question] = BULK[verb];
    const names = some.map((one) => one.name);
    if (question && !await sure(`${label}: ${counted(names.length, "guest")}?`, `${question}\n${names.join(", ")}`, label)) return;
    const outcome = await act(verb, names.length === 1 ? names[0] : counted(names.length, "guest"), { name: names.join(",") }, [], long);
    if (outcome.result === false && Array.isArray(outcome.table)) dialog(`${label}: some guests failed`, "wide", table(outcome.table.map((one) => one.map((text) => String(text ?? ""))), "Results"));
  }

  return {
    element, draw,
    show(_parts, query) {
      for (const [name, one] of filters) one.set(query.get(name) || "");
      const by = (query.get("sort") || "name").replace(/^-/, "");
      sort = { by: by === "name" || Object.hasOwn(COLUMNS, by) ? by : "name", down: (query.get("sort") || "").startsWith("-") };
      limit = MORE_ROWS;
    },
  };
}
