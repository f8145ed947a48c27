// The storage pools of all hosts, and their volumes.

import { button, h, meter, sure, table } from "./dom.js";
import { bytes, fits, natural, number, size } from "./model.js";
import { checked } from "./plan.js";
import { may } from "./rights.js";
import { answered, empty, guest_links, sheet } from "./sheet.js";
import { act } from "./store.js";

const MOST_VOLUMES = 500;
const MIB = 1024 * 1024;

/** The view. */
export function storage_view(page) {
  const sheets = [
    sheet("Storage pools", "Libvirt's pools. Allocated: what the volumes of the pool take now.", "pools", content, page),
    sheet("Volumes", "Disks and other volumes in the running pools, and the guests that use them.", "volumes",
      (data, words) => volumes(data, words, remove), page),
  ];
  const element = h("div", { class: "sheets" }, sheets.map((one) => one.element));

  /** Delete a volume after a check and a question, which is not asked in another view. */
  async function remove(host, pool, volume) {
    const [about, kwarg] = [`${pool}/${volume}`, { pool, volume, host }];
    sheets[1].say({ comment: `Checking whether ${about} is used …` });
    const plan = await checked("volume_delete", about, kwarg);
    sheets[1].say(plan);
    if (plan.result === false || !element.isConnected) return;
    if (!await sure(`Delete ${about} on ${host}?`, `${plan.comment}. Its data is lost.`, "Delete")) return;
    sheets[1].say({ comment: `Deleting ${about} …` });
    sheets[1].say(await act("volume_delete", about, kwarg, [], true));
    for (const one of sheets) one.look();
  }

  return {
    element,
    draw(hosts, words) { for (const one of sheets) one.draw(hosts, words); },
  };
}

function volumes(data, words, remove) {
  const [hosts, silent] = answered(data.volumes && data.volumes.hosts, natural);
  const pools = hosts.flatMap(([host, one]) => Object.entries(one.pools || {}).map(([pool, of]) => [host, pool, of || {}]));
  const unread = pools.filter(([, , of]) => of.error).map(([host, pool, of]) => h("p", { class: "line bad" }, `${host}, pool ${pool}: ${of.error}`));
  const all = pools.flatMap(([host, pool, of]) => Object.entries(of.volumes || {}).sort(([a], [b]) => natural(a, b)).map(([name, one]) => [host, pool, name, one || {}]))
    .filter(([host, pool, name, one]) => !words || fits(words, host, pool, name, one.format || "", ...(one.used_by || []), (one.used_by || []).length ? "" : "no guest"));
  if (!all.length) return [silent, unread, h("p", { class: "none" }, words ? "No volume fits the search." : "No volumes.")];
  const rows = all.slice(0, MOST_VOLUMES).map(([host, pool, name, one]) => [
    host, pool, h("span", { title: one.path || null }, name), one.error || one.format || "", one.error ? "" : bytes(one.capacity), one.error ? "" : bytes(one.allocation),
    (one.used_by || []).length ? guest_links(one.used_by) : "no guest",
    (one.used_by || []).length || !may("volume_delete") ? "" : h("span", { class: "actions" },
      button("Delete…", () => remove(host, pool, name), "danger", { "aria-label": `Delete ${name} in ${pool} on ${host}…`, "data-name": `delete ${host} ${pool} ${name}` })),
  ]);
  return [silent, unread, table([["host", "pool", "volume", "format", "size", "allocated", "used by", ""], ...rows], "Volumes"),
    all.length > rows.length ? h("p", { class: "line" }, `${rows.length} of ${all.length} volumes: search for others`) : null];
}

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
