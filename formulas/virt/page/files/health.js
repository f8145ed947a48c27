// The health of the cloud: high availability, certificates, backups, unfinished migrations, leftovers.
// Data and exit codes of the verbs decide whether something is wrong, never their texts.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, table } from "./dom.js";
import { clock, counted, natural } from "./model.js";
import { href } from "./router.js";
import { guest_links } from "./sheet.js";

const OK = ["OK", "good"];
const PROBLEMS = ["problems", "bad"];
const UNUSED = ["not configured", ""];
const UNKNOWN = ["unknown", ""];

// title, verb, how its answer is read, the view with more about it
const CARDS = [
  ["High availability", "ha_status", availability, "ha"],
  ["Certificates", "certs", certificates, ""],
  ["Backups", "backups", backups, ""],
  ["Migrations", "migrate_unfinished", migrations, ""],
  ["Leftovers", "repair", leftovers, ""],
];

/** The view. */
export function health_view({ ended }) {
  const grid = h("div", { class: "health" });
  const cards = CARDS.map(([title, fun, read, more]) => {
    const body = h("div", { class: "body" }, h("p", { class: "none" }, "not queried yet"));
    const mark = h("span", { class: "badge" }, "…");
    let busy = false;
    const again = button("Refresh", () => { if (!busy) look(); }, "quiet", { "aria-label": `Refresh: ${title}` });
    const element = h("section", { class: "panel" }, h("header", null,
      h("h2", null, more ? h("a", { href: href(more) }, title) : title), mark, again), body);
    async function look() {
      busy = true;
      let found;
      try {
        found = judged(await call(fun), read);
      } catch (exc) {
        if (exc instanceof LoggedOut) { ended(exc.message); return; }
        found = { mark: UNKNOWN, text: exc.message };
      }
      busy = false;
      const [word, kind] = found.mark;
      mark.className = `badge ${kind}`;
      mark.textContent = word;
      fill(body, h("p", { class: found.mark === PROBLEMS ? "line bad" : "line" }, found.text),
        found.rows && found.rows.length > 1 ? table(found.rows, title) : null,
        h("p", { class: "none" }, `queried at ${clock(Date.now())}`));
    }
    return { element, look };
  });
  fill(grid, cards.map((one) => one.element));
  let at = 0;
  return {
    element: grid,
    draw() {
      if (Date.now() - at < 60000) return;
      at = Date.now();
      for (const one of cards) one.look();
    },
  };
}

/** How an answer is shown: `mark`, `text`, and `rows` of a table. An answer with the exit code 1 is
 * never OK. */
export function judged(data, read) {
  const own = Object.entries(data || {}).filter(([key, one]) => key !== "retcode" && one && typeof one === "object");
  const refusal = own.length === 1 && own[0][1].result === false ? own[0][1] : null;
  if (own.some(([, one]) => one.configured === false)) {
    return { mark: UNUSED, text: own.map(([, one]) => String(one.comment || "")).join("\n") };
  }
  const found = own.length ? read(data, refusal) : { mark: UNKNOWN, text: "no answer" };
  if (data && data.retcode && found.mark === OK) found.mark = PROBLEMS;
  return found;
}

function availability({ ha = {} }, refusal) {
  const problems = Array.isArray(ha.problems) ? ha.problems.map(String) : [];
  const bad = refusal || problems.length || ha.result === false;
  const hosts = Object.entries(ha.hosts || {}).sort(([a], [b]) => natural(a, b));
  return {
    mark: bad ? PROBLEMS : OK, text: problems.length ? problems.join("\n") : String(ha.comment || (refusal && refusal.comment) || ""),
    rows: [["host", "state", "reason"], ...hosts.map(([name, one]) => [name, String(one.state), String(one.reason || "")])],
  };
}

function migrations({ unfinished = {} }) {
  const hosts = Object.entries(unfinished.hosts || {});
  const rows = hosts.flatMap(([host, all]) => Object.entries(all || {}).map(([guest, one]) => [
    guest_links([guest]), host, String((one && (one.target || one.phase)) || "")]));
  return {
    mark: unfinished.result === false || rows.length ? PROBLEMS : OK, text: String(unfinished.comment || ""),
    rows: [["guest", "host", "to"], ...rows],
  };
}

function leftovers({ repair = {} }) {
  const found = Array.isArray(repair.findings) ? repair.findings : [];
  const silent = Array.isArray(repair.table) ? repair.table.slice(1 + found.length) : [];
  return {
    mark: repair.result === false || found.length || silent.length ? PROBLEMS : OK,
    text: found.length ? counted(found.length, "leftover") : String(repair.comment || ""),
    rows: [["name", "problem", "remedy"],
      ...found.map((one) => [String(one.name || ""), String(one.what || ""), String(one.how || "")]),
      ...silent.map((row) => [String(row[0] || ""), String(row[1] || ""), ""])],
  };
}

// rows of virt.certs whose dates a person compares; other columns would not fit
function certificates(data, refusal) {
  const wrong = Object.entries(data.problems || {}).sort(([a], [b]) => natural(a, b));
  const hosts = Object.entries((data.certificates || {}).hosts || {}).sort(([a], [b]) => natural(a, b));
  const rows = hosts.flatMap(([host, one]) => Object.entries(one.certificates || {})
    .map(([use, of]) => [host, use, day(of.not_after), day(of.renewed)]));
  if (!refusal && !hosts.length && !wrong.length) return { mark: UNUSED, text: "no certificates: virt.keys issues them" };
  const text = wrong.length ? wrong.map(([host, why]) => `${host}: ${why}`).join("\n") : "All certificates are valid.";
  return {
    mark: refusal || wrong.length ? PROBLEMS : OK, text: refusal ? String(refusal.comment) : text,
    rows: [["host", "certificate", "valid until", "renewed"], ...rows],
  };
}

const day = (time) => String(time || "").slice(0, 10);

/** Whether a backup replaces another one as the latest: one that can be restored is preferred, then
 * the newer one. */
function later(one, other) {
  if (!one.problem !== !other.problem) return !one.problem;
  return String(one.taken_at) > String(other.taken_at);
}

/** The answer of virt.backups as a summary, with the latest backup of each guest. */
export function backups(data, refusal) {
  if (refusal) return { mark: PROBLEMS, text: String(refusal.comment) };
  const targets = Object.entries(data).filter(([, one]) => Array.isArray(one));
  const silent = Object.entries(data.unreachable || {});
  const all = targets.flatMap(([target, list]) => list.map((one) => ({ target, ...one })));
  const latest = new Map();
  for (const one of all) {
    const before = latest.get(one.guest);
    if (!before || later(one, before)) latest.set(one.guest, one);
  }
  const wrong = all.filter((one) => one.problem);
  const text = [
    all.length ? `${counted(all.length, "backup")} of ${counted(latest.size, "guest")}` : "No guest has a backup: salt-run virt.backup GUEST",
    ...silent.map(([target, why]) => `${target}: ${why}`),
    ...(wrong.length ? [`${counted(wrong.length, "backup")} that cannot be restored`] : []),
  ].join("\n");
  const list = [["guest", "latest", "target", "consistency", ""],
    ...[...latest.values()].map((one) => [one.guest, String(one.taken_at), one.target, String(one.consistency || ""), String(one.problem || "")])];
  return { mark: silent.length || wrong.length ? PROBLEMS : all.length ? OK : ["no backups", "warn"], text, rows: list };
}
