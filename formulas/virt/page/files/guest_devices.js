// The forms that attach devices to a guest, and detach them.

import { call } from "./api.js";
import { by_source } from "./images.js";
import { natural } from "./model.js";
import { field, plan_dialog } from "./plan.js";
import { may } from "./rights.js";

/** What a verb returns, to offer choices; a user who may not call it types the values. */
const asked = (fun, read) => call(fun).then(read).catch(() => []);
const given_of = (...pairs) => Object.fromEntries(pairs.filter(([, value]) => value));
const named = (all) => Object.keys(all || {}).sort(natural).map((name) => [name, ""]);

/** Show the fields of the choice of another field, and hide those of its other choices. fields: choice to
 * its fields. more: further fields of which not all choices have one. */
function switched(choice, fields, more = []) {
  const show = () => {
    const shown = fields[choice.value] || [];
    for (const one of [...Object.values(fields).flat(), ...more]) one.row.hidden = !shown.includes(one);
  };
  choice.input.addEventListener("change", show);
  show();
}

/** The forms. ask: opens one for the guest of `context`. */
export function device_forms(context, ask) {
  const of_host = (data, key) => (data && data[key] && data[key].hosts && data[key].hosts[context.guest.host]) || {};

  function disk() {
    const kinds = [["new", "a new, empty disk", "size"], ["file", "an existing file or volume", "source"], ["detached", "one that was detached from this guest", "existing"]];
    const kind = field("disk-kind", "Disk", { kind: kinds.filter(([, , argument]) => may("attach", argument)) });
    const name = field("disk-name", "Name", { value: "data", help: "of the disk; the guest sees a device such as vdb" });
    const size = field("disk-size", "Size", { value: "10GiB", help: "with a unit: 20GiB" });
    const pool = field("disk-pool", "Pool", { help: "without one: the folder virt:images of the host", choices: asked("pools", (data) => named(of_host(data, "pools").pools)) });
    const source = field("disk-source", "File or volume", { help: "a path on the host, or a volume of the pool; it is never deleted with the guest" });
    const format = field("disk-format", "Format", { kind: [["", "recognized"], ["qcow2", "qcow2"], ["raw", "raw"]] });
    ask("Add a disk", "Add", [kind, name, size, source, pool, format], () => ["attach", {
      disk: name.value, ...{
        new: given_of(["size", size.value], ["pool", pool.value]),
        file: given_of(["source", source.value], ["pool", pool.value], ["format", format.value]),
        detached: { existing: true },
      }[kind.value],
    }]);
    switched(kind, { new: may("attach", "pool") ? [size, pool] : [size], file: [source, pool, format], detached: [] }, [pool]);
  }

  function interface_() {
    const data = call("networks").then((found) => of_host(found, "networks")).catch(() => ({}));
    const kind = field("nic-kind", "Connect to", { kind: [["network", "a network of libvirt"], ["bridge", "a bridge of the host"]] });
    const network = field("nic-network", "Network", { choices: data.then((found) => named(found.networks)) });
    const bridge = field("nic-bridge", "Bridge", { choices: data.then((found) => named(found.bridges)) });
    const model = field("nic-model", "Model", { kind: ["virtio", "e1000e", "rtl8139"].map((one) => [one, one]) });
    const mac = field("nic-mac", "MAC address", { placeholder: "one that is free" });
    ask("Add an interface", "Add", [kind, network, bridge, model, mac], () => ["attach",
      given_of([kind.value, { network, bridge }[kind.value].value], ["model", model.value], ["mac", mac.value])]);
    switched(kind, { network: [network], bridge: [bridge] });
  }

  function iso(drives) {
    const image = field("iso", "Image", { placeholder: "salt://debian.iso", help: "salt://…, https://…, a path on the host, or pool://POOL/VOLUME",
      choices: asked("images", (data) => by_source(data).map((one) => one.source).filter((one) => /\.iso$/i.test(one)).map((one) => [one, ""])) });
    const drive = field("iso-drive", "Drive", { kind: [["", drives.length ? "the first" : "a CD drive"], ...drives.map((one) => [one, one])] });
    ask("Insert an ISO image", "Insert", drives.length > 1 ? [image, drive] : [image], () => ["attach", given_of(["iso", image.value], ["disk", drive.value])],
      { text: "A guest without a CD drive gets one, which it sees at its next start." });
  }

  const detach_disk = (target) => {
    const force = field("detach-force", "also if the guest boots from it", { kind: "checkbox" });
    ask(`Detach ${target}`, "Detach", [force], () => ["detach", { disk: target, ...(force.value ? { force: true } : {}) }],
      { danger: true, text: "The disk is not deleted, and can be attached again. Unmount it in the guest first." });
  };
  const detach_interface = (mac) => ask(`Detach ${mac}`, "Detach", [], () => ["detach", { interface: mac }],
    { danger: true, text: "The guest loses this connection." });
  const eject = (target) => ask(`Eject the medium of ${target}`, "Eject", [], () => ["detach", { iso: target }]);

  return { disk, interface: interface_, iso, detach_disk, detach_interface, eject };
}
