// The health of the cloud: high availability, certificates, backups, unfinished migrations, leftovers.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, table } from "./dom.js";
import { clock, counted } from "./model.js";

const CARDS = [
  ["High availability", "ha_status", {}, (data) => plain(data.ha)],
  ["Certificates", "certs", {}, certificates],
  ["Backups", "backups", {}, backups],
  ["Migrations", "migrate_unfinished", {}, (data) => plain(data.unfinished)],
  ["Leftovers", "repair", {}, (data) => plain(Object.values(data).find((one) => one && one.comment !== undefined))],
];

/** The view. */
export function health_view({ ended }) {
  const grid = h("div", { class: "health" });
  const cards = CARDS.map(([title, fun, kwarg, read]) => {
    const body = h("div", { class: "body" }, h("p", { class: "none" }, "not queried yet"));
    const mark = h("span", { class: "badge" }, "…");
    const again = button("Refresh", () => look(), "quiet", { "aria-label": `Refresh: ${title}` });
    const element = h("section", { class: "panel" }, h("header", null, h("h2", null, title), mark, again), body);
    async function look() {
      again.disabled = true;
      let found;
      try {
        found = read(await call(fun, kwarg));
      } catch (exc) {
        if (exc instanceof LoggedOut) { ended(exc.message); return; }
        found = { ok: null, text: exc.message };
      }
      again.disabled = false;
      mark.className = `badge ${found.ok === true ? "good" : found.ok === false ? "bad" : ""}`;
      mark.textContent = found.ok === true ? "OK" : found.ok === false ? "problems" : "unknown";
      fill(body, h("p", { class: "line" }, found.text), found.rows && found.rows.length > 1 ? table(found.rows, title) : null,
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

function plain(one) {
  if (!one || typeof one !== "object") return { ok: null, text: "no answer" };
  return { ok: one.result !== false, text: String(one.comment || ""), rows: rows(one.table) };
}

const rows = (found) => (Array.isArray(found) ? found.map((row) => row.map((one) => (
  one === null || one === undefined ? "" : typeof one === "object" ? JSON.stringify(one) : String(one)))) : null);

function certificates(data) {
  if (!data.certificates) return plain(Object.values(data)[0]);
  const wrong = Object.entries(data.problems || {});
  const text = wrong.length ? wrong.map(([host, why]) => `${host}: ${why}`).join("\n") : "all certificates are valid";
  return { ok: !wrong.length, text, rows: rows(data.certificates.table) };
}

/** Whether a backup replaces another one as the latest: one that can be restored is preferred, then
 * the newer one. */
function later(one, other) {
  if (!one.problem !== !other.problem) return !one.problem;
  return String(one.taken_at) > String(other.taken_at);
}

/** The answer of virt.backups as a summary, with the latest backup of each guest. */
export function backups(data) {
  const targets = Object.entries(data).filter(([, one]) => Array.isArray(one));
  const refused = Object.values(data).find((one) => one && one.result === false);
  if (refused) return plain(refused);
  const silent = Object.entries(data.unreachable || {});
  const all = targets.flatMap(([target, list]) => list.map((one) => ({ target, ...one })));
  const latest = new Map();
  for (const one of all) {
    const before = latest.get(one.guest);
    if (!before || later(one, before)) latest.set(one.guest, one);
  }
  const wrong = all.filter((one) => one.problem);
  const text = [
    `${counted(all.length, "backup")} of ${counted(latest.size, "guest")}`,
    ...silent.map(([target, why]) => `${target}: ${why}`),
    ...(wrong.length ? [`${counted(wrong.length, "backup")} that cannot be restored`] : []),
  ].join("\n");
  const list = [["guest", "latest", "target", "consistency", ""],
    ...[...latest.values()].map((one) => [one.guest, String(one.taken_at), one.target, String(one.consistency || ""), String(one.problem || "")])];
  return { ok: !silent.length && !wrong.length, text, rows: list };
}
