// The networks and bridges of all hosts, and who uses them.

import { table } from "./dom.js";
import { fits, natural } from "./model.js";
import { answered, empty, guest_links, sheet } from "./sheet.js";

/** The view. */
export function networks_view(page) {
  return sheet("Networks", "Libvirt's networks and the bridges that guests are connected to.", "networks", content, page);
}

function content(data, words) {
  const [hosts, silent] = answered(data.networks && data.networks.hosts, natural);
  const all = hosts.flatMap(([host, one]) => [...networks(host, one), ...bridges(host, one)]);
  const rows = all.filter(([found]) => !words || fits(words, found)).map(([, row]) => row);
  if (!all.length) {
    return [silent, silent.length && !hosts.length ? null : empty("No networks",
      "No host has a libvirt network, and no guest is connected to a bridge. Define a network with the state virt.network_running, or a bridge with the formula:",
      ["salt HOST state.apply libvirt"])];
  }
  return [silent, table([["host", "network", "state", "forward", "bridge", "addresses", "leases", "guests"], ...rows], "Networks")];
}

const found = (host, name, guests) => [host, name, ...(guests || [])].join(" ");

function networks(host, one) {
  return Object.entries(one.networks || {}).sort(([a], [b]) => natural(a, b)).map(([name, of]) => [
    found(host, name, of.guests),
    [host, name, network_state(of), of.forward || "isolated", of.bridge || "", (of.addresses || []).join(", "),
      of.leases ?? "", guest_links(of.guests)],
  ]);
}

function network_state(of) {
  const notes = [of.active ? "active" : "inactive", of.autostart ? null : "no autostart",
    of.persistent === false ? "not persistent" : null, of.pending && of.pending.length ? "changes at its next start" : null];
  return notes.filter(Boolean).join(", ");
}

function bridges(host, one) {
  return Object.entries(one.bridges || {}).sort(([a], [b]) => natural(a, b)).map(([name, of]) => [
    found(host, name, of.guests), [host, name, "bridge of the host", "", name, "", "", guest_links(of.guests)],
  ]);
}
