// The deployment of a guest, and the explanation of its placement.

import { call } from "./api.js";
import { button, dialog, fill, h, line, save, saved, say } from "./dom.js";
import { number, verdict } from "./model.js";
import { act, state } from "./store.js";

const PARTS = ["memory", "vcpu", "disk", "image", "labels", "spread"];

function field(id, label, more = {}, help = "") {
  const input = h("input", { id, ...more });
  return { input, row: h("div", { class: "field" }, h("label", { for: id }, label), input,
    help ? h("small", null, help) : null) };
}

function tick(id, label, on) {
  const input = h("input", { id, type: "checkbox", checked: on });
  return { input, row: h("label", { class: "tick", for: id }, input, label) };
}

/** The dialog that deploys a guest. */
export function deploy_dialog() {
  const name = field("name", "Name", { required: true, autocomplete: "off" }, "also the minion id");
  const cpu = field("cpu", "vCPUs", { type: "number", min: "1", value: "1", required: true });
  const mem = field("mem", "Memory", { value: "1G", required: true }, "MiB, or with a unit: 4G");
  const image = field("image", "Image", { value: saved("salt-virt-image") || "salt://", required: true },
    "salt://…, https://…, or a path on the host");
  const disk = field("disk", "Disk profile", { placeholder: "default" });
  const nic = field("nic", "NIC profile", { placeholder: "default" });
  const seed = tick("seed", "Install a Salt minion with its key", true);
  const start = tick("start", "Start it", true);
  const vnc = tick("vnc", "VNC display", false);
  const host = h("select", { id: "host" }, h("option", { value: "" }, "automatic"),
    state.hosts.map((one) => h("option", { value: one.name }, one.name)));
  const said = line();
  const picture = h("div", { class: "explain" });
  const form = h("form", { class: "form", novalidate: true },
    name.row, cpu.row, mem.row, image.row,
    h("div", { class: "field" }, h("label", { for: "host" }, "Host"), host),
    disk.row, nic.row, seed.row, start.row, vnc.row);
  const go = h("button", { type: "submit", class: "primary" }, "Deploy");
  const made = dialog("Deploy a guest", "wide", form);
  form.append(said, picture, h("footer", null,
    button("Where would it go?", explain), button("Cancel", () => made.close()), go));
  form.addEventListener("submit", (event) => { event.preventDefault(); deploy(); });
  name.input.focus();

  function given() {
    const value = (one) => one.input.value.trim();
    const found = { name: value(name), cpu: number(value(cpu)) || value(cpu), mem: value(mem), image: value(image) };
    if (host.value) found.host = host.value;
    if (value(disk)) found.disk = value(disk);
    if (value(nic)) found.nic = value(nic);
    if (!seed.input.checked) found.seed = false;
    if (!start.input.checked) found.start = false;
    if (vnc.input.checked) found.enable_vnc = true;
    return found;
  }

  async function explain() {
    said.className = "line";
    said.textContent = "Querying all hosts …";
    fill(picture);
    const { seed: _seed, start: _start, enable_vnc: _vnc, ...wanted } = given();
    try {
      const found = verdict(await call("explain", wanted), wanted.name);
      said.textContent = found.title || found.comment || "";
      said.classList.toggle("bad", !found.host);
      fill(picture, explained(found.table || []));
    } catch (exc) {
      say(said, { result: false, comment: exc.message });
    }
  }

  async function deploy() {
    const wanted = given();
    said.className = "line";
    said.textContent = "Checking the request …";
    go.disabled = true;
    const plan = await call("init", { ...wanted, test: true }).then((data) => verdict(data, wanted.name))
      .catch((exc) => ({ result: false, comment: exc.message }));
    go.disabled = false;
    say(said, plan);
    if (plan.result === false) return;
    save("salt-virt-image", wanted.image);
    made.close();
    act("init", wanted.name, wanted, [], true);
  }

  return made;
}

/** The table of virt.explain as bars: the parts of each host's score, or why it was rejected. */
export function explained(rows) {
  const [head, ...body] = rows;
  if (!body.length) return [];
  const at = Object.fromEntries(head.map((one, place) => [one, place]));
  const most = Math.max(0.01, ...body.map((row) => PARTS
    .reduce((all, part) => all + Math.max(0, number(row[at[part]])), 0)));
  const legend = h("ul", { class: "legend" }, PARTS.map((part) => h("li", null, h("i", { class: `part ${part}` }), part)));
  const lines = body.map((row) => {
    const out = row[at["rejected by"]];
    if (out) {
      return h("li", { class: "rejected" }, h("strong", null, row[at.host]),
        h("span", { class: "badge" }, out), h("span", null, row[at.reason] || ""));
    }
    const bars = PARTS.filter((part) => number(row[at[part]]) > 0).map((part) => {
      const bar = h("i", { class: `part ${part}` });
      bar.style.width = `${(number(row[at[part]]) / most) * 100}%`;
      return bar;
    });
    const text = PARTS.map((part) => `${part} ${row[at[part]] ?? 0}`).join(", ");
    return h("li", null, h("strong", null, row[at.host]),
      h("span", { class: "score", role: "img", "aria-label": `score ${row[at.score]}: ${text}`, title: text }, bars),
      h("span", { class: "value" }, row[at.score] ?? ""));
  });
  return [legend, h("ol", { class: "scores" }, lines.sort((a, b) => order(a) - order(b)))];
}

const order = (element) => (element.className === "rejected" ? 1 : 0);

