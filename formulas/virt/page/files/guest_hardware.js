// The hardware of a guest, and its changes.

import { button, fill, h, table } from "./dom.js";
import { bytes, number, size } from "./model.js";
import { field, plan_dialog } from "./plan.js";

/** The tab. */
export function hardware_tab(context) {
  const element = h("div");
  let drawn = "";

  const ask = (title, word, fields, given, more = {}) => plan_dialog({
    title: `${title}: ${context.guest.name}`, word, fields, given, name: context.guest.name,
    run: (verb, kwarg) => context.change(verb, kwarg, [], true, title), ...more,
  });

  function resources() {
    const { guest } = context;
    const cpu = field("new-cpu", "vCPUs", { kind: "number", min: "1", value: String(guest.vcpus) });
    const mem = field("new-mem", "Memory", { value: size_text(guest.memory), help: "MiB, or with a unit: 4GiB" });
    ask("Change CPUs and memory", "Change", [cpu, mem], () => ["update", {
      ...(number(cpu.value) === guest.vcpus ? {} : { cpu: number(cpu.value) || cpu.value }),
      ...(mem.value === size_text(guest.memory) ? {} : { mem: mem.value }),
    }], { text: "What the running guest cannot take takes effect at its next start; Check tells which." });
  }

  function add_disk() {
    const name = field("disk-name", "Name", { value: "data" });
    const length = field("disk-size", "Size", { value: "10GiB", help: "with a unit: 20GiB" });
    ask("Add a disk", "Add", [name, length], () => ["update", { disks: [{ name: name.value, size: length.value }] }]);
  }

  function grow(target, now) {
    const length = field("disk-size", "New size", { value: now ? bytes(now).replace(" ", "") : "", help: "Disks are never shrunk." });
    ask(`Grow ${target}`, "Grow", [length], () => ["resize", { disk: target, size: length.value }]);
  }

  function detach(target) {
    ask(`Detach ${target}`, "Detach", [], () => ["update", { detach: [target] }],
      { danger: true, text: "The disk is not deleted, and can be attached again. The system in the guest must not use it." });
  }

  function disks(guest) {
    const rows = Object.entries(guest.disks).map(([target, one]) => [
      target, one["virtual size"] ? bytes(one["virtual size"]) : "",
      String(one["file format"] || one.type || ""), h("code", null, String(one.file || one.source || "")),
      h("span", { class: "actions" },
        button("Grow…", () => grow(target, number(one["virtual size"])), "", { "aria-label": `Grow ${target}…`, "data-name": `grow ${target}` }),
        button("Detach…", () => detach(target), "danger", { "aria-label": `Detach ${target}…`, "data-name": `detach ${target}` })),
    ]);
    return rows.length ? table([["disk", "size", "format", "file", ""], ...rows], `Disks of ${guest.name}`)
      : h("p", { class: "none" }, "none");
  }

  return {
    element,
    draw(guest) {
      const print = JSON.stringify([guest.vcpus, guest.memory, guest.memory_now, guest.disks, guest.nics, guest.pending, guest.state]);
      if (print === drawn) return;
      drawn = print;
      const held = element.contains(document.activeElement) ? document.activeElement.dataset.name : null;
      fill(element,
        guest.pending.length ? h("section", { class: "notice" }, h("h3", null, "Changes at the next start"),
          h("ul", null, guest.pending.map((one) => h("li", null, one)))) : null,
        h("h3", null, "CPUs and memory"),
        table([["vCPUs", "memory", "memory now", ""], [guest.vcpus, size(guest.memory), size(guest.memory_now),
          h("span", { class: "actions" }, guest.state === "gone" ? null : button("Change…", resources, "", { "data-name": "resources" }))]], "CPUs and memory"),
        h("h3", null, "Disks"), disks(guest),
        h("div", { class: "actions" }, guest.state === "gone" ? null : button("Add a disk…", add_disk, "", { "data-name": "add" })),
        h("h3", null, "Network"), nics(guest));
      const again = held && [...element.querySelectorAll("button")].find((one) => one.dataset.name === held);
      if (again) again.focus();
    },
  };
}

const size_text = (mib) => (mib % 1024 ? `${Math.round(mib)}MiB` : `${mib / 1024}GiB`);

function nics(guest) {
  const rows = Object.entries(guest.nics).map(([mac, one]) => [
    h("code", null, mac), Object.values(one.source || {}).map(String).join(" "), String(one.type || ""),
    String(one.model || ""),
  ]);
  return rows.length ? table([["MAC address", "network", "kind", "model"], ...rows], `Network of ${guest.name}`)
    : h("p", { class: "none" }, "none");
}
