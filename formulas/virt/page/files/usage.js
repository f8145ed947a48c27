// What hosts and guests use: samples of virt.top, of the last hour.

import { call, Failed, LoggedOut } from "./api.js";
import { refused } from "./model.js";
import { changed, state } from "./store.js";

const EVERY_MS = 30000;
const SHARE = 10;
const HOUR_MS = 3600000;

const hosts = new Map();
const guests = new Map();
let next_at = 0;
let is_asking = false;

const list = (map, key) => (map.get(key) || []);

/** The samples of a host or of a guest (HOST/NAME), oldest first: {at, …as virt.top returns}. */
export const host_usage = (name) => list(hosts, name);
export const guest_usage = (key) => list(guests, key);
export const latest = (samples) => samples[samples.length - 1] || null;

/** The samples of one value. */
export const series = (samples, read) => samples.map((one) => ({ at: one.at, value: read(one) }));

function add(map, key, sample) {
  const all = list(map, key);
  const newest = latest(all);
  if (newest && newest.at >= sample.at) { // the engine sends samples that are older than the page's own
    map.set(key, [...all.filter((one) => one.at !== sample.at && newest.at - one.at < HOUR_MS), sample].sort((a, b) => a.at - b.at));
    return;
  }
  const first = all.findIndex((one) => sample.at - one.at < HOUR_MS);
  if (first) all.splice(0, first < 0 ? all.length : first);
  all.push(sample);
  map.set(key, all);
}

/** Add the answer of virt.top. */
export function learn(top, at) {
  for (const [host, one] of Object.entries((top && top.hosts) || {})) {
    if (!one || typeof one !== "object" || one.error) continue;
    const { guests: of = {}, ...own } = one;
    add(hosts, host, { at, ...own });
    for (const [name, guest] of Object.entries(of || {})) if (guest && typeof guest === "object") add(guests, `${host}/${name}`, { at, ...guest });
  }
}

/** Query the usage if it is due, and redraw; the engine sends it unasked. A user who may not call
 * virt.top sees none. */
export async function sample() {
  if (is_asking || state.engine || document.hidden || Date.now() < next_at || !state.at) return;
  is_asking = true;
  const began = Date.now();
  try {
    const data = await call("top");
    if (refused(data) || !data.top) next_at = Infinity;
    else {
      learn(data.top, Date.now());
      next_at = Date.now() + Math.max(EVERY_MS, SHARE * (Date.now() - began));
      changed.dispatchEvent(new Event("cloud"));
    }
  } catch (exc) {
    if (exc instanceof LoggedOut || !(exc instanceof Failed)) throw exc;
    next_at = Infinity;
  } finally {
    is_asking = false;
  }
}

changed.addEventListener("usage", (event) => {
  for (const one of event.detail) learn(one, Number(one.at) * 1000);
});

changed.addEventListener("left", () => {
  hosts.clear();
  guests.clear();
  next_at = 0;
});
