// What the master knows of guests beside their definition: owners, labels, backups. Queried when a view
// needs it, and not more often than once a minute.

import { call, LoggedOut } from "./api.js";
import { number } from "./model.js";
import { changed } from "./store.js";

const STALE_MS = 60000;

const none = () => ({ owner: new Map(), labels: new Map(), backups: new Map(), may_back_up: false });

/** owner, labels: name to them; backups: name to {age_s, at} of the latest good one; may_back_up: false
 * if no target is configured, or before that is known. */
export const records = none();
let at = 0;

async function asked(fun) {
  try {
    return await call(fun);
  } catch (exc) {
    if (exc instanceof LoggedOut) throw exc;
    return {}; // this user may not, or nothing is configured
  }
}

/** Query them if they are stale. again: query them in any case. */
export async function look(again = false) {
  if (!again && Date.now() - at < STALE_MS) return;
  at = Date.now();
  const [owned, saved] = await Promise.all([asked("owners"), asked("backups")]);
  const of = (owned && owned.owners) || {};
  records.owner = new Map(Object.entries(of.guests || {}).filter(([, user]) => user).map(([name, user]) => [name, String(user)]));
  records.labels = new Map(Object.entries(of.labels || {}).map(([name, all]) => [name, [all].flat().map(String)]));
  learn_backups(saved);
  changed.dispatchEvent(new Event("cloud"));
}

function learn_backups(data) {
  const targets = Object.entries(data || {}).filter(([, one]) => Array.isArray(one));
  records.may_back_up = !Object.values(data || {}).some((one) => one && one.configured === false);
  records.backups = new Map();
  for (const one of targets.flatMap(([, all]) => all)) {
    if (!one || one.problem) continue;
    const before = records.backups.get(one.guest);
    if (!before || String(one.taken_at) > before.at) {
      records.backups.set(String(one.guest), { at: String(one.taken_at), age_s: one.age_s === undefined ? null : number(one.age_s) });
    }
  }
}

changed.addEventListener("left", () => {
  at = 0;
  Object.assign(records, none());
});
