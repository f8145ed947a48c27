// The hardware of a guest.

import { fill, h, table } from "./dom.js";
import { size } from "./model.js";

/** The tab. */
export function hardware_tab() {
  const element = h("div");
  return {
    element,
    draw(guest) {
      fill(element, h("h3", null, "Disks"), disks(guest), h("h3", null, "Network"), nics(guest));
    },
  };
}

function disks(guest) {
  const rows = Object.entries(guest.disks).map(([name, one]) => [
    name, one["virtual size"] ? size(Number(one["virtual size"]) / 1024 ** 2) : "",
    String(one["file format"] || one.type || ""), h("code", null, String(one.file || one.source || "")),
  ]);
  return rows.length ? table([["disk", "size", "format", "file"], ...rows], `Disks of ${guest.name}`)
    : h("p", { class: "none" }, "none");
}

function nics(guest) {
  const rows = Object.entries(guest.nics).map(([mac, one]) => [
    h("code", null, mac), Object.values(one.source || {}).join(" "), String(one.type || ""),
    String(one.model || ""),
  ]);
  return rows.length ? table([["address", "network", "kind", "model"], ...rows], `Network of ${guest.name}`)
    : h("p", { class: "none" }, "none");
}
