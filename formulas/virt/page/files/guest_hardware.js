// The hardware of a guest, and its changes.

import { button, fill, h, hold, table } from "./dom.js";
import { device_forms } from "./guest_devices.js";
import { bytes, number, size } from "./model.js";
import { field, plan_dialog } from "./plan.js";
import { may, rights_print } from "./rights.js";

/** The tab. */
export function hardware_tab(context) {
  const element = h("div");
  let drawn = "";

  const ask = (title, word, fields, given, more = {}) => plan_dialog({
    title: `${title}: ${context.guest.name}`, word, fields, given, name: context.guest.name,
    run: (verb, kwarg) => context.change(verb, kwarg, [], true, title), ...more,
  });

  const forms = device_forms(context, ask);
  const offered = (verb, argument, ...words) => (may(verb, argument) ? button(...words) : null);

  function resources() {
    const { guest } = context;
    const cpu = field("new-cpu", "vCPUs", { kind: "number", min: "1", value: String(guest.vcpus) });
    const mem = field("new-mem", "Memory", { value: size_text(guest.memory), help: "MiB, or with a unit: 4GiB" });
    ask("Change CPUs and memory", "Change", [cpu, mem], () => ["update", {
      ...(number(cpu.value) === guest.vcpus ? {} : { cpu: number(cpu.value) || cpu.value }),
      ...(mem.value === size_text(guest.memory) ? {} : { mem: mem.value }),
    }], { text: "What the running guest cannot take takes effect at its next start; Check tells which." });
  }

  function grow(target, now) {
    const length = field("disk-size", "New size", { value: now ? bytes(now).replace(" ", "") : "", help: "Disks are never shrunk." });
    ask(`Grow ${target}`, "Grow", [length], () => ["resize", { disk: target, size: length.value }]);
  }

  function disks(guest) {
    const rows = Object.entries(guest.disks).map(([target, one]) => [
      target, one["virtual size"] ? bytes(one["virtual size"]) : "",
      is_drive(one) ? String(one.type) : String(one["file format"] || one.type || ""), h("code", null, String(one.file || one.source || "")),
      h("span", { class: "actions" }, is_drive(one)
        ? one.type === "cdrom" && offered("detach", "iso", "Eject…", () => forms.eject(target), "", { "aria-label": `Eject the medium of ${target}…`, "data-name": `eject ${target}` })
        : [offered("resize", "size", "Grow…", () => grow(target, number(one["virtual size"])), "", { "aria-label": `Grow ${target}…`, "data-name": `grow ${target}` }),
          offered("detach", "disk", "Detach…", () => forms.detach_disk(target), "danger", { "aria-label": `Detach ${target}…`, "data-name": `detach ${target}` })]),
    ]);
    return rows.length ? table([["disk", "size", "format", "file", ""], ...rows], `Disks of ${guest.name}`)
      : h("p", { class: "none" }, "none");
  }

  function nics(guest) {
    const rows = Object.entries(guest.nics).map(([mac, one]) => [
      h("code", null, mac), Object.values(one.source || {}).map(String).join(" "), String(one.type || ""),
      String(one.model || ""), h("span", { class: "actions" },
        offered("detach", "interface", "Detach…", () => forms.detach_interface(mac), "danger", { "aria-label": `Detach ${mac}…`, "data-name": `detach ${mac}` })),
    ]);
    return rows.length ? table([["MAC address", "network", "kind", "model", ""], ...rows], `Network of ${guest.name}`)
      : h("p", { class: "none" }, "none");
  }

  /** The buttons that attach devices: [argument of virt.attach, text, form]. */
  const add = (guest, ...buttons) => (guest.state === "gone" ? null : h("div", { class: "actions" },
    buttons.map(([argument, text, open]) => offered("attach", argument, text, open, "", { "data-name": text }))));

  return {
    element,
    draw(guest) {
      const print = JSON.stringify([guest.vcpus, guest.memory, guest.memory_now, guest.disks, guest.nics, guest.pending, guest.state, rights_print()]);
      if (print === drawn) return;
      drawn = print;
      hold(element, () => fill(element,
        guest.pending.length ? h("section", { class: "notice" }, h("h3", null, "Changes at the next start"),
          h("ul", null, guest.pending.map((one) => h("li", null, one)))) : null,
        h("h3", null, "CPUs and memory"),
        table([["vCPUs", "memory", "memory now", ""], [guest.vcpus, size(guest.memory), size(guest.memory_now),
          h("span", { class: "actions" }, guest.state === "gone" ? null : offered("update", "mem", "Change…", resources, "", { "data-name": "resources" }))]], "CPUs and memory"),
        h("h3", null, "Disks"), disks(guest),
        add(guest, ["size", "Add a disk…", forms.disk], ["iso", "Insert an ISO image…", () => forms.iso(Object.keys(guest.disks).filter((one) => guest.disks[one].type === "cdrom"))]),
        h("h3", null, "Network"), nics(guest), add(guest, ["network", "Add an interface…", forms.interface])));
    },
  };
}

const is_drive = (disk) => disk.type === "cdrom" || disk.type === "floppy";
const size_text = (mib) => (mib % 1024 ? `${Math.round(mib)}MiB` : `${mib / 1024}GiB`);
