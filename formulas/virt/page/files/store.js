// The last known state of the cloud, and the running jobs. Listeners are notified of changes.

import { begin, call, events, Failed, LoggedOut, unwrapped, who } from "./api.js";
import { cloud, refused, verdict } from "./model.js";
import { advance } from "./progress.js";
import { watch } from "./watch.js";

const EVERY_MS = 30000;
// a page keeps the master busy for at most a tenth of the time
const SHARE = 10;
const SOON_MS = 1500;
// pause before the next attempt to connect to the engine, which grows and differs between pages
const BACK_MS = 30000;
const MOST_BACK_MS = 900000;
const AGAIN_MS = 10000;
const KEPT = 60;
const ARMED_MS = 300000;
// the longest time of setTimeout
const LONGEST_MS = 2 ** 31 - 1;
// functions of the runner that change nothing
const READING = new Set(["list", "query", "locate", "vm_info", "addresses", "snapshots", "watch", "host_info", "versions",
  "next_host", "explain", "capacity", "networks", "pools", "volumes", "images", "top", "log", "migratable",
  "migrate_unfinished", "backups", "backup_ls", "metrics", "certs", "owners", "deployments", "ha_status", "ha_simulate", "display",
  "screenshot", "help", "ticket"]);

export const state = { hosts: [], at: 0, error: "", live: false, engine: false, jobs: new Map(), disarmed: false };
export const changed = new EventTarget();

const history = new Map();
const awaited = new Map();
// results of jobs whose event arrived before their job id
const early = new Map();
let timer = 0;
let asking = null;
let stop = null;
let host_info = true;
// when to ask again whether high availability is armed
let armed_at = 0;
// requests a refresh from the engine; null: the page queries the hypervisors itself
let pushed = null;
let took = 0;

const tell = (what) => changed.dispatchEvent(new Event(what));

/** Start to update the state. on_end: called when the session has ended. */
export function open(on_end) {
  stop = new AbortController();
  host_info = true;
  armed_at = 0;
  const { signal } = stop;
  const over = (exc) => {
    if (exc instanceof LoggedOut && !signal.aborted) on_end(exc.message);
  };
  follow(signal, over).catch(over);
  expire(signal, over);
}

/** End the session when it expires: the engine and the stream of events do not. */
function expire(signal, over) {
  const left_ms = who().ends - Date.now();
  if (left_ms > LONGEST_MS) return;
  const end = setTimeout(() => over(new LoggedOut("the session has ended: log in again")), left_ms);
  signal.addEventListener("abort", () => clearTimeout(end));
}

/** Receive updates from the engine, and query the API while the engine is not available. */
async function follow(signal, over) {
  let wait = BACK_MS;
  let alone = null;
  while (!signal.aborted) {
    try {
      await watch(signal, (ask_there) => {
        if (alone) alone.abort();
        alone = null;
        wait = BACK_MS;
        pushed = ask_there;
        state.engine = true;
        live(true);
      }, told, heard);
    } catch (exc) {
      if (exc instanceof LoggedOut) throw exc;
    }
    if (pushed) broken();
    if (!alone && !signal.aborted) alone = by_itself(signal, over);
    await pause(wait * (0.5 + Math.random()));
    wait = Math.min(2 * wait, MOST_BACK_MS);
  }
}

function by_itself(signal, over) {
  const alone = new AbortController();
  signal.addEventListener("abort", () => alone.abort());
  listen(alone.signal, over);
  look(alone.signal, over);
  return alone;
}

const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });

function live(is_live) {
  state.live = is_live;
  tell("live");
}

const broke_off = () => new Failed("the stream of events was interrupted: check the state of the guest");
let breaks = 0;

/** Handle the end of the stream of updates. */
function broken() {
  pushed = null;
  state.engine = false;
  breaks += 1;
  for (const [, give_up] of awaited.values()) give_up(broke_off());
  awaited.clear();
  live(false);
}

function told(query, info, at, disarmed, usage) {
  if (!who()) return;
  if (usage.length) changed.dispatchEvent(new CustomEvent("usage", { detail: usage }));
  state.disarmed = disarmed;
  if (typeof query === "string") state.error = query;
  else Object.assign(state, { hosts: cloud(query, info), at, error: "" });
  tell("cloud");
}

/** Stop the updates, and discard the state. */
export function shut() {
  if (stop) stop.abort();
  clearTimeout(timer);
  tell("left");
  history.clear();
  awaited.clear();
  early.clear();
  pushed = null;
  took = 0;
  Object.assign(state, { hosts: [], at: 0, error: "", live: false, engine: false, jobs: new Map(), disarmed: false });
}

async function look(signal, over) {
  clearTimeout(timer);
  if (signal.aborted) return;
  if (!document.hidden) {
    try {
      await refresh();
    } catch (exc) {
      over(exc);
      if (exc instanceof LoggedOut) return;
    }
  }
  if (!signal.aborted) timer = setTimeout(() => look(signal, over), Math.max(EVERY_MS, SHARE * took));
}

/** Query all hosts and guests. Simultaneous calls share one query. */
export function refresh() {
  asking = asking || (pushed || ask)().finally(() => { asking = null; });
  return asking;
}

async function ask() {
  const began = Date.now();
  try {
    const [query, info] = await Promise.all([call("query"), host_info ? promises() : null, look_armed()]);
    const why = refused(query);
    if (why) throw new Failed(why);
    if (!who()) return;
    Object.assign(state, { hosts: cloud(query, info), at: Date.now(), error: "" });
  } catch (exc) {
    if (exc instanceof LoggedOut || !(exc instanceof Failed)) throw exc;
    state.error = exc.message;
  }
  took = Date.now() - began;
  tell("cloud");
}

async function promises() {
  try {
    const found = await call("host_info");
    if (!refused(found)) return found;
  } catch (exc) {
    if (!(exc instanceof Failed)) throw exc;
  }
  host_info = false;
  return null;
}

/** Update whether high availability is disarmed, at long intervals; only once if it is not
 * configured. */
async function look_armed() {
  if (Date.now() < armed_at) return;
  armed_at = Date.now() + ARMED_MS;
  try {
    const { ha } = await call("ha_status");
    state.disarmed = Boolean(ha) && ha.armed === false;
    if (ha && ha.configured === false) armed_at = Infinity;
  } catch (exc) {
    if (exc instanceof LoggedOut) throw exc;
  }
}

let soon = 0;

function look_soon() {
  if (pushed) return;
  clearTimeout(soon);
  soon = setTimeout(() => refresh().catch(() => {}), SOON_MS);
}

async function listen(signal, over) {
  while (!signal.aborted) {
    try {
      await events(signal, () => live(true), heard);
    } catch (exc) {
      // this user may be denied the stream but not the API: the next query shows it
      if (exc instanceof LoggedOut && !signal.aborted) await refresh().catch(over);
    }
    if (signal.aborted) return;
    broken();
    await pause(AGAIN_MS);
  }
}

function heard(tag, data) {
  const parts = tag.split("/");
  if (parts[1] === "run" && parts[3] === "ret") ended(parts[2], data);
  else if (parts[0] === "salt" && parts[1] === "virt" && parts.length === 5) step(parts, data);
  else if (tag.startsWith("salt/virt/ha/request")) { armed_at = 0; look_soon(); }
  else if (tag.startsWith("salt/engines/libvirt_events") || tag.includes("/lifecycle/")) look_soon();
}

function ended(jid, data) {
  const wait = awaited.get(jid);
  if (wait) {
    awaited.delete(jid);
    wait[0](data.return);
  } else {
    early.set(jid, data.return);
    if (early.size > KEPT) early.delete(early.keys().next().value);
  }
  const fun = String(data.fun || "").replace("runner.virt.", "");
  if (String(data.fun || "").startsWith("runner.virt.") && !READING.has(fun)) look_soon();
}

function step(parts, data) {
  const swapped = parts[2] === "migrate" || parts[2] === "backup" || parts[2] === "ha";
  if (swapped && parts[4] !== "progress" && parts[2] !== "ha") return;
  const [about, operation, what] = swapped ? [parts[3], parts[2], parts[4]] : parts.slice(2);
  const text = String(data.message || data.text || "");
  if (what !== "progress") remember(about, operation, text || what);
  if (operation === "ha") return;
  const job = job_of(about, operation);
  if (text) job.text = text;
  advance(job, what, data.percent);
  if (what === "done" || what === "failed") {
    if (!job.own) finish(job, what === "done", text);
    look_soon();
  }
  tell("jobs");
}

function remember(about, operation, text) {
  const kept = history.get(about) || [];
  kept.unshift({ at: Date.now(), operation, text });
  history.set(about, kept.slice(0, KEPT));
}

/** The events of a guest since the page was opened, the latest first. */
export const heard_of = (name) => history.get(name) || [];

function job_of(about, operation) {
  const key = `${operation} ${about}`;
  const there = state.jobs.get(key);
  if (there && there.result === undefined) return there;
  const made = {
    key, about, operation, began: Date.now(), text: "", percent: null, phase: "", result: undefined, own: false,
  };
  state.jobs.delete(key);
  state.jobs.set(key, made);
  for (const old of state.jobs.keys()) {
    if (state.jobs.size > KEPT) state.jobs.delete(old);
  }
  return made;
}

function finish(job, result, text) {
  Object.assign(job, { result, ended: Date.now(), percent: null, text: text || job.text });
}

/** Run an operation as a job that the page shows. long: it may take longer than a request. Returns
 * its `result` and `comment`. */
export async function act(fun, about, kwarg, arg = [], long = false) {
  const job = job_of(about, fun);
  job.own = true;
  tell("jobs");
  let said;
  try {
    const data = long && state.live ? await in_background(fun, kwarg, arg) : await call(fun, kwarg, arg);
    said = verdict(data, about);
  } catch (exc) {
    if (exc instanceof LoggedOut) changed.dispatchEvent(new CustomEvent("ended", { detail: exc.message }));
    said = { result: false, comment: exc.message };
  }
  finish(job, said.result !== false, said.comment);
  remember(about, fun, String(said.comment || ""));
  tell("jobs");
  changed.dispatchEvent(new CustomEvent("said", { detail: said }));
  await refresh().catch(() => {});
  return said;
}

async function in_background(fun, kwarg, arg) {
  const line = breaks;
  const jid = await begin(fun, kwarg, arg);
  if (early.has(jid)) return unwrapped(early.get(jid), fun);
  // the stream that would report its result was interrupted while the job started
  if (line !== breaks) throw broke_off();
  return unwrapped(await new Promise((...end) => { awaited.set(jid, end); }), fun);
}
