// The storage pools of all hosts.

import { meter, table } from "./dom.js";
import { fits, natural, number, size } from "./model.js";
import { answered, empty, sheet } from "./sheet.js";

/** The view. */
export function storage_view(page) {
  return sheet("Storage pools", "Libvirt's pools. Allocated: what the volumes of the pool take now.", "pools", content, page);
}

const MIB = 1024 * 1024;

function content(data, words) {
  const [hosts, silent] = answered(data.pools && data.pools.hosts, natural);
  const all = hosts.flatMap(([host, one]) => Object.entries(one.pools || {})
    .sort(([a], [b]) => natural(a, b)).map(([name, of]) => [host, name, of || {}]));
  if (!all.length) {
    return [silent, silent.length && !hosts.length ? null : empty("No storage pools",
      "No host has a storage pool. Guests whose disks are files need none. Define one with the state virt.pool_running, or:",
      ["salt HOST virt.pool_define images dir target=/srv/images start=True"])];
  }
  const rows = all.filter(([host, name, of]) => !words || fits(words, host, name, of.type || "", of.target_path || ""))
    .map(([host, name, of]) => [host, name, of.type || "", pool_state(of), usage(name, of), of.target_path || ""]);
  return [silent, table([["host", "pool", "type", "state", "usage", "path"], ...rows], "Storage pools")];
}

function usage(name, of) {
  const capacity = number(of.capacity);
  if (!capacity) return "";
  const text = `${size(number(of.allocation) / MIB)} of ${size(capacity / MIB)}, ${size(number(of.free) / MIB)} free`;
  return meter(`Pool ${name}`, number(of.allocation) / capacity, text);
}

function pool_state(of) {
  const notes = [String(of.state || "unknown"), of.autostart ? null : "no autostart",
    of.persistent === false ? "not persistent" : null];
  return notes.filter(Boolean).join(", ");
}
