// The images of the master and of the hosts' caches.

import { h, table } from "./dom.js";
import { fits, natural, number, size } from "./model.js";
import { answered, empty, guest_links, sheet } from "./sheet.js";

const MIB = 1024 * 1024;
const COPY = `scp debian-12.qcow2 root@${location.hostname}:/srv/salt/images/`;

/** The view. */
export function images_view(page) {
  return sheet("Images", "Sources of new disks: the master's files, and what the hosts have cached.", "images", content, page);
}

/** The images by source: `source`, `size_bytes`, `format`, `on` (hosts), `guests`, `on_master`. */
export function by_source(data) {
  const answer = (data && data.images) || {};
  const found = new Map();
  const entry = (source) => {
    if (!found.has(source)) found.set(source, { source, size_bytes: 0, format: "", on: [], guests: [], on_master: false, fetched: "" });
    return found.get(source);
  };
  for (const one of Array.isArray(answer.master) ? answer.master : []) {
    Object.assign(entry(String(one.source)), { on_master: true, size_bytes: number(one.size_bytes) });
  }
  const [hosts] = answered(answer.hosts, natural);
  for (const [host, { images }] of hosts) {
    for (const [file, one] of Object.entries(images || {})) {
      const image = entry(String(one.source || one.path || file));
      image.on.push(host);
      image.guests.push(...(one.used_by || []));
      image.size_bytes = image.size_bytes || number(one.size_bytes);
      image.format = image.format || String(one.format || "");
      image.fetched = [image.fetched, String(one.fetched || "")].sort().pop();
    }
  }
  return [...found.values()].sort((a, b) => natural(a.source, b.source));
}

function content(data, words) {
  const [hosts, silent] = answered(data.images && data.images.hosts, natural);
  const all = by_source(data);
  if (!all.length) {
    return [silent, silent.length && !hosts.length ? null : empty("No images",
      "Copy a disk image to the file_roots of the master; guests are then deployed from salt://…:",
      [COPY],
      "Or deploy from an https:// address: the hosts cache it.")];
  }
  const rows = all.filter((one) => !words || fits(words, one.source, ...one.on, ...one.guests)).map((one) => [
    h("a", { href: `#deploy?${new URLSearchParams({ image: one.source })}`, title: "Deploy a guest from it" }, one.source),
    one.format, size(one.size_bytes / MIB), one.on_master ? "yes" : "", one.on.join(", "), one.fetched,
    one.guests.length ? guest_links(one.guests) : "no guest",
  ]);
  return [silent, table([["image", "format", "size", "on the master", "cached on", "fetched", "used by"], ...rows], "Images"),
    h("p", { class: "none" }, "A new image is copied to the file_roots of the master: the API takes no files. ",
      h("code", null, COPY), " makes it ", h("code", null, "salt://images/debian-12.qcow2"),
      ". A host's cached images that no guest uses are removed with ", h("code", null, "salt HOST virt.image_prune"), ".")];
}
