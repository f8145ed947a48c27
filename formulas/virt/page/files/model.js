// Convert answers of the API to the data that the page draws, without access to the document.

/** The hosts in the answers of virt.query and virt.host_info, sorted by name, each with its guests.
 * info: null if the user may not call virt.host_info. Sizes in MiB. */
export function cloud(query, info) {
  const names = new Set([...keys(query), ...keys(info)]);
  return [...names].sort(natural).map((name) => host(name, (query || {})[name], (info || {})[name]));
}

const keys = (data) => Object.keys(data || {})
  .filter((name) => name !== "retcode" && typeof data[name] === "object" && data[name] !== null);

function host(name, asked, info) {
  const of = (asked && asked.node_info) || {};
  const known = info && !info.error ? info : null;
  const guests = Object.entries((asked && asked.vm_info) || {})
    .map(([guest_name, one]) => guest(guest_name, name, one || {}))
    .map((one) => (known && texts(known.creating).includes(one.name) ? { ...one, state: "creating" } : one))
    .sort((a, b) => natural(a.name, b.name));
  const promised = sum(guests.map((one) => one.memory));
  const memory = known ? known.memory_used_mib + known.memory_free_mib
    : Math.max(number(of.phymemory), promised);
  return {
    name, guests, memory,
    error: (asked && asked.error) || (info && info.error) || "",
    last_seen: last_seen(asked && asked.error && asked.last_seen),
    memory_used: known ? known.memory_used_mib : promised,
    vcpus: known ? known.vcpus_used + known.vcpus_free : number(of.cpus),
    vcpus_used: known ? known.vcpus_used : sum(guests.map((one) => one.vcpus)),
    disk: known ? known.disk_gib : null,
    disk_used: known ? known.disk_gib - known.disk_free_gib : null,
    cpus: number(of.cpus) || (known ? known.cpus : 0),
    physical: number(of.phymemory) || (known ? known.memory_mib : 0),
    types: known ? known.types || [] : [],
    disk_profiles: texts(known && known.disk_profiles), nic_profiles: texts(known && known.nic_profiles),
    maintenance: known && known.maintenance ? reason(known.maintenance) : "",
    running: guests.filter((one) => one.state === "running").length,
  };
}

const texts = (found) => (Array.isArray(found) ? found.map(String) : []);

/** The guests that a host had when it last responded, and the time. */
function last_seen(said) {
  const guests = said && Array.isArray(said.guests) ? said.guests.map(String) : [];
  return { guests: guests.sort(natural), at: guests.length ? String(said.at || "") : "" };
}

const reason = (mark) => (typeof mark === "string" ? mark : String(mark.reason || "in maintenance"));

function guest(name, on, one) {
  const memory = number(one.maxMem) / 1024 || number(one.mem) / 1024;
  return {
    key: `${on}/${name}`, name, host: on, state: String(one.state || "unknown"),
    vcpus: number(one.cpu), memory, memory_now: number(one.mem) / 1024 || memory,
    uuid: String(one.uuid || ""), disks: one.disks || {}, nics: one.nics || {},
    addresses: Array.isArray(one.addresses) ? one.addresses.map(String) : [],
    autostart: typeof one.autostart === "boolean" ? one.autostart : null,
    graphics: one.graphics || {}, pending: Array.isArray(one.pending) ? one.pending.map(String) : [],
  };
}

export const number = (value) => (Number.isFinite(Number(value)) ? Number(value) : 0);
export const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

const collator = new Intl.Collator("en", { numeric: true });
export const natural = (a, b) => collator.compare(a, b);

/** A size in MiB with the best unit. */
export function size(mib) {
  const gib = mib / 1024;
  if (gib >= 1024) return `${round(gib / 1024)} TiB`;
  return gib >= 1 ? `${round(gib)} GiB` : `${Math.round(mib)} MiB`;
}

const round = (value) => (value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);

/** A number with its noun. */
export const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** The answer of a verb about a guest or host: `result` (true, false, or null for a test),
 * `comment`, and further data; of a verb about several guests, its summary. */
export function verdict(data, about) {
  const named = data && data[about];
  const summary = Object.values(data || {}).find((one) => one && one.summary === true);
  const all = Object.entries(data || {}).filter(([key, one]) => key !== "retcode" && one && typeof one === "object");
  const found = named && typeof named === "object" ? named : summary || (all.length > 1 ? together(all) : (all[0] || [])[1]);
  return found || { result: false, comment: "no answer" };
}

/** The answers about several guests as one: it has failed if one of them has. `done`: the names of
 * the others. */
function together(named) {
  const all = named.map(([, one]) => one);
  if (!all.every((one) => "result" in one && "comment" in one)) return all[0];
  const result = all.some((one) => one.result === false) ? false : all.some((one) => one.result === null) ? null : true;
  const done = named.filter(([, one]) => one.result === true).map(([name]) => name);
  return { result, comment: all.map((one) => one.comment).join("\n"), done };
}

/** The comment of an answer that is a refusal, or "". */
export function refused(data) {
  const all = Object.entries(data || {}).filter(([key]) => key !== "retcode");
  const one = all.length === 1 ? all[0][1] : null;
  return one && typeof one === "object" && one.result === false && typeof one.comment === "string"
    ? one.comment : "";
}

/** Whether texts contain all words of a search. */
export function fits(words, ...texts) {
  const all = texts.join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

/** The time of day of a timestamp. */
export const clock = (when) => new Date(when).toLocaleTimeString([], { hour12: false });

/** A time that the master has recorded: of day, with the date if it is not today. */
export function stamp(text) {
  if (!text) return "";
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return String(text);
  const is_today = time.toDateString() === new Date().toDateString();
  return is_today ? clock(time) : `${time.toLocaleDateString([], { month: "short", day: "numeric" })} ${clock(time)}`;
}

const ON = ["running", "idle", "blocked", "paused", "pmsuspended"];

/** Whether a guest in that state has a process of QEMU. */
export const is_on = (state) => ON.includes(state);

/** The verbs for a guest in that state: [verb, label, kind, whether it must be confirmed]. */
export function verbs(state) {
  if (state === "paused") return [RESUME, FORCE_OFF];
  return is_on(state) ? [SHUTDOWN, PAUSE, RESET, FORCE_OFF] : [START];
}

const START = ["start", "Start", "primary", false];
const SHUTDOWN = ["shutdown", "Shut down", "", false];
const PAUSE = ["pause", "Pause", "", false];
const RESUME = ["resume", "Resume", "primary", false];
const RESET = ["reset", "Reset", "danger", true];
const FORCE_OFF = ["force_off", "Power off", "danger", true];

/** A size in bytes with the best unit. */
export const bytes = (value) => size(number(value) / 1024 ** 2);

/** A rate in bytes per second. */
export function rate(value) {
  if (value === null || value === undefined) return "";
  const kib = number(value) / 1024;
  return kib >= 1024 ? `${round(kib / 1024)} MiB/s` : `${Math.round(kib)} KiB/s`;
}

/** A duration in the best unit. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}
