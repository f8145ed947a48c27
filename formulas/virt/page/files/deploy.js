// The deployment of guests: their arguments, where placement would create them and why, and the start.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, line, save, saved, say } from "./dom.js";
import { by_source } from "./images.js";
import { bytes, natural, number, verdict } from "./model.js";
import { names, placement, SIZES, unplaced_arguments } from "./deploy_model.js";
import { may } from "./rights.js";
import { go } from "./router.js";
import { act, state } from "./store.js";

const IMAGE = "salt-virt-image";
const IMAGE_HELP = "choose one, or type salt://…, https://… or a path on the host";

/** A field: `input`, `row`, and `wrong(text)`, which shows an error beside it. words: texts in a
 * refusal that concern it. */
function field(id, label, { help = "", words = [], input = null, ...more } = {}) {
  const made = input || h("input", { id, autocomplete: "off", ...more });
  const why = h("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
  made.id = id;
  const about = h("small", { id: `${id}-help` }, help);
  made.setAttribute("aria-describedby", `${id}-help ${id}-wrong`);
  const wrong = (text) => {
    why.textContent = text;
    why.hidden = !text;
    if (text) made.setAttribute("aria-invalid", "true");
    else made.removeAttribute("aria-invalid");
  };
  made.addEventListener("input", () => wrong(""));
  return {
    input: made, words: [id, ...words], wrong, value: () => made.value.trim(), help: about,
    row: h("div", { class: "field" }, h("label", { for: id }, label), made, about, why),
  };
}

function tick(id, label, on) {
  const input = h("input", { id, type: "checkbox", checked: on });
  return { input, row: h("label", { class: "tick", for: id }, input, label) };
}

const options = (all, chosen) => all.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

function all_fields() {
  const select = (all, chosen = "") => h("select", null, options(all, chosen));
  return {
    name: field("name", "Name", { help: "also the minion id", autocapitalize: "none" }),
    count: field("count", "How many", { type: "number", min: "1", max: "100", value: "1", words: ["several"] }),
    image: field("image", "Image", { list: "known-images", placeholder: "salt://images/debian-12.qcow2", help: IMAGE_HELP }),
    iso: field("iso", "ISO image", { placeholder: "/srv/iso/install.iso", help: "a path on the host; without an image, the guest installs from it", words: ["source_file", "cdrom"] }),
    cpu: field("cpu", "vCPUs", { type: "number", min: "1", value: "2", words: ["vcpus", "cpus"] }),
    mem: field("mem", "Memory", { value: "2G", help: "4G, or MiB", words: ["memory"] }),
    size: field("size", "Disk size", { placeholder: "that of the profile", help: "20G; at least that of the image", words: ["disks"] }),
    disk: field("disk", "Disk profile", { input: select([["default", "default"]]), words: ["virt:disk", "disk profile"] }),
    nic: field("nic", "NIC profile", { input: select([["default", "default"]]), words: ["virt:nic", "NIC profile", "interface", "bridge"] }),
    host: field("host", "Host", { input: select([["", "automatic"]]), words: ["hypervisor"] }),
    seed: field("seed", "First boot", { input: select([["minion", "install a Salt minion"], ["cloud-init", "cloud-init, your user data"], ["none", "leave the image as it is"]]) }),
    user_data: field("user_data", "User data", { input: h("textarea", { spellcheck: false, placeholder: "#cloud-config" }), words: ["user-data"] }),
    owner: field("owner", "Owner", { help: "for virt:rights" }),
    labels: field("labels", "Labels", { placeholder: "web, production", help: "of the guest, separated by commas" }),
    start: tick("start", "Start it", true),
    autostart: tick("autostart", "Start it with its host", false),
    vnc: tick("vnc", "Display (VNC)", true),
  };
}

/** The view. */
export function deploy_view(page) {
  const at = all_fields();
  const known_images = h("datalist", { id: "known-images" });
  const presets = h("div", { class: "presets wide", role: "group", "aria-label": "Sizes" });
  const said = line();
  const where = h("ol", { class: "placement", "aria-label": "Hosts" });
  const deploy_button = h("button", { type: "submit", class: "primary" }, "Deploy");
  const ask = button("Where would it go?", explain);
  const group = (legend, ...parts) => h("fieldset", null, h("legend", null, legend), parts);
  const image_note = h("p", { class: "none wide", hidden: true });
  const form = h("form", { novalidate: true },
    group("Guest", at.name.row, at.count.row, at.host.row),
    group("Size", presets, at.cpu.row, at.mem.row, at.size.row),
    group("System", at.image.row, known_images, at.iso.row, image_note, at.seed.row, h("div", { class: "wide", hidden: true }, at.user_data.row)),
    group("Devices", at.disk.row, at.nic.row, at.vnc.row),
    group("Operation", at.owner.row, at.labels.row, at.start.row, at.autostart.row),
    h("div", { class: "actions" }, deploy_button, ask));
  const element = h("section", { class: "sheet" },
    h("header", null, h("h3", null, "Deploy guests")),
    h("div", { class: "deploy" }, form, h("aside", { "aria-label": "Check and placement" }, h("h3", null, "Check"),
      said, where)));
  let [images, images_at] = [[], 0];
  let named = false;

  form.addEventListener("submit", (event) => { event.preventDefault(); deploy(); });
  at.name.input.addEventListener("input", () => { named = Boolean(at.name.value()); });
  at.seed.input.addEventListener("change", () => { at.user_data.row.parentElement.hidden = at.seed.value() !== "cloud-init"; });
  at.disk.input.addEventListener("change", () => {
    at.size.input.disabled = at.disk.value() !== "default";
    if (at.size.input.disabled) at.size.input.value = "";
  });
  at.image.input.addEventListener("input", describe_image);
  for (const one of [at.cpu, at.mem, at.size]) one.input.addEventListener("input", mark_preset);
  fill(presets, SIZES.map((one) => button(one.name, () => {
    Object.assign(at.cpu.input, { value: String(one.cpu) });
    Object.assign(at.mem.input, { value: one.mem });
    if (!at.size.input.disabled) at.size.input.value = one.size;
    mark_preset();
  }, "", { "aria-pressed": "false", title: `${one.cpu} vCPUs, ${one.mem} memory, ${one.size} disk` })));
  fill(said, "The request is checked before anything is created.");
  at.image.input.value = saved(IMAGE) || "";

  function mark_preset() {
    SIZES.forEach((one, place) => {
      const is_it = at.cpu.value() === String(one.cpu) && at.mem.value() === one.mem && at.size.value() === one.size;
      presets.children[place].setAttribute("aria-pressed", String(is_it));
    });
  }

  const taken = () => new Set(state.hosts.flatMap((one) => one.guests.map((guest) => guest.name)));

  function given() {
    const found = { name: names(at.name.value(), number(at.count.value()), taken()).join(","),
      cpu: number(at.cpu.value()) || at.cpu.value(), mem: at.mem.value(), image: at.image.value() || null };
    for (const [key, value] of [["host", at.host.value()], ["disk", at.disk.value()], ["nic", at.nic.value()]]) {
      if (value && value !== "default") found[key] = value;
    }
    const size = at.size.value();
    if (at.iso.value()) {
      found.disks = [...(size ? [{ name: "system", size }] : []), { name: "iso", device: "cdrom", source_file: at.iso.value() }];
      found.boot_dev = ["hd", "cdrom"];
    } else if (size) found.size = size;
    const seed = at.seed.value();
    if (seed === "none" || !found.image) found.seed = false;
    else if (seed === "cloud-init") {
      found.seed = "cloud-init";
      if (at.user_data.value()) found.user_data = at.user_data.input.value;
    }
    if (!at.start.input.checked) found.start = false;
    if (at.autostart.input.checked) found.autostart = true;
    if (at.vnc.input.checked) found.enable_vnc = true;
    return found;
  }

  /** Show a refusal beside the fields that it concerns, and completely in the status line. */
  function refuse(comment) {
    say(said, { result: false, comment });
    let first = null;
    for (const part of String(comment).split(/; |\n/)) {
      const one = Object.values(at).find(({ words }) => words && words.some((word) => new RegExp(`(^|[\\s'"])${word}($|[\\s:'",])`, "i").test(part)));
      if (!one) continue;
      one.wrong(part);
      first = first || one;
    }
    if (first) first.input.focus();
  }

  /** Whether the fields can be sent; shows what is missing. */
  function complete() {
    for (const one of Object.values(at)) if (one.wrong) one.wrong("");
    const missing = [];
    const miss = (one, text) => { one.wrong(text); missing.push([one, text]); };
    if (!at.name.value()) miss(at.name, "give the guest a name");
    if (!/^[1-9]\d*$/.test(at.cpu.value())) miss(at.cpu, "a number of vCPUs, at least 1");
    if (!/^\d+(\.\d+)?\s*[kmgt]?i?b?$/i.test(at.mem.value())) miss(at.mem, "MiB, or a size with a unit such as 2G");
    if (at.size.value() && !/^\d+(\.\d+)?\s*[kmgt]?i?b?$/i.test(at.size.value())) miss(at.size, "MiB, or a size with a unit such as 20G");
    if (!at.image.value() && !at.iso.value()) miss(at.image, "choose an image, or an ISO image to install from");
    if (!missing.length) return true;
    say(said, { result: false, comment: "Some fields need a value." });
    fill(where);
    missing[0][0].input.focus();
    return false;
  }

  async function asked(fun, kwarg, about, text) {
    said.className = "line";
    said.textContent = text;
    for (const one of [ask, deploy_button]) one.disabled = true;
    try {
      return verdict(await call(fun, kwarg), about);
    } catch (exc) {
      if (exc instanceof LoggedOut) page.ended(exc.message);
      return { result: false, comment: exc.message };
    } finally {
      for (const one of [ask, deploy_button]) one.disabled = false;
    }
  }

  async function explain() {
    if (!complete()) return;
    const wanted = unplaced_arguments(given());
    const found = await asked("explain", wanted, wanted.name, "Querying all hosts …");
    if (found.result === false && !found.table) { refuse(found.comment); return; }
    say(said, { result: Boolean(found.host), comment: found.title || found.comment || "" });
    fill(where, placement(found.table || []).map((one) => h("li", { class: one.rejected ? "rejected" : "" },
      h("strong", null, one.host), one.badge ? h("span", { class: `badge ${one.rejected ? "bad" : "good"}` }, one.badge) : null,
      h("p", { class: "why" }, one.why))));
  }

  async function deploy() {
    if (!complete()) return;
    const wanted = given();
    const plan = await asked("init", { ...wanted, test: true }, wanted.name, "Checking the request …");
    if (plan.result === false) { refuse(plan.comment); return; }
    say(said, plan);
    save(IMAGE, at.image.value());
    const marks = [["set_owner", "owner", at.owner.value()],
      ["label", "labels", at.labels.value().split(",").map((one) => one.trim()).filter(Boolean)]];
    at.name.input.value = "";
    named = false;
    go("jobs");
    const end = await act("init", wanted.name, wanted, [], true);
    const made = end.done || (end.result === false ? [] : wanted.name.split(","));
    for (const name of made) {
      for (const [fun, key, value] of marks) if (value.length) await act(fun, name, { name, [key]: value });
    }
  }

  const about_image = (one) => [one.size_bytes ? bytes(one.size_bytes) : "", one.format,
    one.on.length ? `cached on ${one.on.join(", ")}` : "on the master"].filter(Boolean).join(", ");

  /** Show what is known of the chosen image. */
  function describe_image() {
    const one = images.find(({ source }) => source === at.image.value());
    at.image.help.textContent = one ? about_image(one) : IMAGE_HELP;
  }

  async function look_images() {
    images_at = Date.now();
    try {
      images = by_source(await call("images")).filter((one) => !/\.iso$/i.test(one.source));
      const all = images;
      fill(known_images, all.map((one) => h("option", { value: one.source }, about_image(one))));
      image_note.hidden = all.length > 0;
      image_note.textContent = "No image is known: copy one to the file_roots of the master, or type an https:// address.";
      if (!at.image.value() && all.length === 1) at.image.input.value = all[0].source;
      describe_image();
    } catch (exc) {
      if (exc instanceof LoggedOut) page.ended(exc.message);
    }
  }

  function choices(one, all) {
    const before = one.value();
    const key = JSON.stringify(all);
    if (one.drawn === key) return;
    one.drawn = key;
    fill(one.input, options(all, before));
  }

  return {
    element,
    draw(hosts) {
      ask.hidden = !may("explain");
      for (const [one, ...what] of [[at.owner, "set_owner"], [at.labels, "label"], [at.iso, "init", "disks"], [at.autostart, "init", "autostart"]]) {
        one.row.hidden = !may(...what);
      }
      const cloud_init = at.seed.input.querySelector("[value=cloud-init]");
      cloud_init.hidden = !may("init", "user_data");
      cloud_init.disabled = cloud_init.hidden;
      const profiles = (key) => [...new Set(["default", ...hosts.flatMap((one) => one[key] || [])])].sort(natural).map((one) => [one, one]);
      choices(at.disk, profiles("disk_profiles"));
      choices(at.nic, profiles("nic_profiles"));
      choices(at.host, [["", "automatic, the best fit"], ...hosts.filter((one) => !one.error)
        .map((one) => [one.name, one.maintenance ? `${one.name} (in maintenance)` : one.name])]);
      if (!named && !at.name.value() && state.at) at.name.input.placeholder = names("guest", 1, taken())[0];
    },
    show(_parts, query) {
      if (query.get("image")) {
        at.image.input.value = query.get("image");
        describe_image();
      }
      if (Date.now() - images_at > 60000) look_images();
    },
  };
}
