// Hosts as boxes, with guests as tiles in proportion to their allocated memory.

import { LoggedOut } from "./api.js";
import { fill, h, meter, save, saved, update } from "./dom.js";
import { graph } from "./graph.js";
import { squarified } from "./layout.js";
import { counted, fits, number, rate, size } from "./model.js";
import { may_go } from "./move.js";
import { may } from "./rights.js";
import { go, href } from "./router.js";
import { host_usage, latest, sample, series } from "./usage.js";

const RATIO = 2.4;
const SLICE_MS = 12;
const PARTS = { both: "map and names", map: "map", list: "names" };
const ZOOMS = { small: "small", medium: "medium", large: "large" };
const [PARTS_KEY, ZOOM_KEY] = ["salt-virt-hosts-show", "salt-virt-hosts-size"];

/** The view. */
export function hosts_view(page) {
  const on = {
    guest: (guest) => go("guest", guest.name), over: may_go,
    drop: (guest, host) => page.move(guest, host.name),
  };
  const boxes = new Map();
  const grid = h("div", { class: "hosts" });
  const drag = { guest: null };
  const look = { parts: saved(PARTS_KEY) || "both", zoom: saved(ZOOM_KEY) || "medium" };
  const element = h("div", null, h("div", { class: "tools" },
    choice("Show", look.parts, PARTS, (value) => set("parts", PARTS_KEY, value)),
    choice("Size", look.zoom, ZOOMS, (value) => set("zoom", ZOOM_KEY, value)), legend()), grid);

  function set(what, key, value) {
    look[what] = value;
    save(key, value);
    grid.className = `hosts ${look.parts} ${look.zoom}`;
  }
  set("parts", PARTS_KEY, look.parts);

  grid.addEventListener("keydown", (event) => arrows(event, grid));
  grid.addEventListener("dragend", () => let_go(grid, drag));

  let later = 0;

  function draw(hosts, words) {
    sample().catch((exc) => { if (exc instanceof LoggedOut) page.ended(exc.message); });
    const names = new Set(hosts.map((one) => one.name));
    for (const [name, { element: gone }] of boxes) {
      if (names.has(name)) continue;
      gone.remove();
      boxes.delete(name);
    }
    go_on(hosts, words, Math.max(1, ...hosts.map((one) => one.memory)), null);
  }

  /** Draw hosts. previous: the element after which the first of them is. It pauses after some
   * milliseconds, so that keys and frames do not wait for all hosts. */
  function go_on(hosts, words, most, previous) {
    clearTimeout(later);
    const until = performance.now() + SLICE_MS;
    let last = previous;
    for (const [at, host] of hosts.entries()) {
      if (at && performance.now() > until) {
        later = setTimeout(() => go_on(hosts.slice(at), words, most, last));
        return;
      }
      const box = boxed(host, most);
      draw_usage(box, host);
      if (!mark(box, host, words)) box.element.remove();
      else {
        const wanted = last ? last.nextElementSibling : grid.firstElementChild;
        if (wanted !== box.element) place(box.element, wanted);
        last = box.element;
      }
    }
  }

  /** Move a box in front of another one, and keep the focus in it. */
  function place(box, before) {
    const focused = box.contains(document.activeElement) ? document.activeElement : null;
    grid.insertBefore(box, before);
    if (focused) focused.focus();
  }

  function boxed(host, most) {
    const print = JSON.stringify([{ ...host, disk: null, disk_used: null }, most]);
    const there = boxes.get(host.name);
    if (there && there.print === print) return there;
    const made = { print, element: host_box(host, most, on, drag), marked: "", metered: "", sampled: "" };
    if (there) keep_focus(there.element, made.element);
    boxes.set(host.name, made);
    return made;
  }

  /** Dim what the search does not find. Returns whether it finds the host or one of its guests. */
  function mark(box, host, words) {
    const whole = !words || fits(words, host.name, host.error, host.maintenance);
    if (whole && !box.marked) return true;
    let found = whole;
    for (const tile of box.element.querySelectorAll(".tile.guest, .lost li, .names li")) {
      const hit = whole || fits(words, tile.dataset.name, tile.dataset.state);
      tile.classList.toggle("dim", !hit);
      found = found || hit;
    }
    box.marked = whole ? "" : words;
    return found;
  }

  return { element, draw, leave() { clearTimeout(later); } };
}

function choice(label, value, options, set) {
  const id = `hosts-${label.toLowerCase()}`;
  const made = h("select", { id, onchange: () => set(made.value) },
    Object.entries(options).map(([name, text]) => h("option", { value: name }, text)));
  made.value = Object.hasOwn(options, value) ? value : Object.keys(options)[0];
  return h("span", { class: "choice" }, h("label", { for: id }, label), made);
}

const legend = () => h("ul", { class: "legend", "aria-label": "Legend" },
  [["running", "running"], ["paused", "paused"], ["shutdown", "off"], ["other", "crashed, other"], ["unseen", "last seen"],
    ["own", "host and QEMU"], ["allocated", "allocated"], ["in-use", "used"], ["warn", "over 80 %"], ["bad", "over 95 %"]]
    .map(([kind, text]) => h("li", null, h("i", { class: kind }), text)));

/** The names of the guests, which the map has no space for. */
export function names(host) {
  if (!host.guests.length) return host.error ? null : h("p", { class: "none" }, "no guests");
  return h("ul", { class: "names", "aria-label": `Names of the guests of ${host.name}` },
    host.guests.map((one, at) => h("li", { "data-name": one.name, "data-state": one.state },
      h("a", {
        href: href("guest", one.name), tabindex: at ? "-1" : "0", "data-name": `${one.key} name`, draggable: "false",
        title: `${one.name}: ${one.state}, ${counted(one.vcpus, "vCPU")}, ${size(one.memory)}`,
      }, h("i", { class: kind_of(one.state), "aria-hidden": "true" }), one.name,
      one.state === "running" ? null : h("span", { class: "hidden" }, `, ${one.state}`)))));
}

const kind_of = (state) => (["running", "paused", "shutdown"].includes(state) ? state : "other");

/** Draw the allocation and the usage of a host; its last hour only if there are new samples. */
function draw_usage(box, host) {
  if (host.error) return;
  const samples = host_usage(host.name);
  const now = latest(samples);
  // the engine also sends samples that are older than the latest one
  const print = now ? `${now.at} ${samples.length}` : "";
  const metered = `${print} ${host.disk} ${host.disk_used}`; // the box is of the rest
  if (box.metered !== metered) update(box.element.querySelector(".meters"), host_meters(host, now));
  box.metered = metered;
  if (!now || box.sampled === print) return;
  box.sampled = print;
  update(box.element.querySelector(".trends"), trends(samples, true));
}

/** The allocation and the usage of a host as bars. now: its latest sample, or null. */
export function host_meters(host, now) {
  const used = now && now.memory_used_bytes !== null ? number(now.memory_used_bytes) / 1024 ** 2 : null;
  const busy = now && now.cpu_percent !== null ? number(now.cpu_percent) : null;
  const also = (text) => (text === null ? "" : ` · ${text} used`);
  return [
    meter("memory", host.memory_used / host.memory, `${size(host.memory_used)} of ${size(host.memory)}${also(used === null ? null : size(used))}`,
      used === null ? null : used / (host.physical || host.memory)),
    meter("vCPUs", host.vcpus_used / host.vcpus, `${host.vcpus_used} of ${host.vcpus}${also(busy === null ? null : `${Math.round(busy)} %`)}`,
      busy === null ? null : busy / 100),
    host.disk === null ? null
      : meter("disk", host.disk_used / host.disk, `${size(host.disk_used * 1024)} of ${size(host.disk * 1024)}`),
  ];
}

/** The last hour of a host. is_brief: without disks and networks. */
export function trends(samples, is_brief = false) {
  const now = latest(samples);
  const trend = (label, read, most, text) => h("figure", null,
    h("figcaption", null, label, " ", h("b", null, text)), graph(label, series(samples, read), most, text));
  const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);
  const pressure = (one) => (one.pressure ? Math.max(...["cpu", "memory", "io"].map((kind) => number(one.pressure[kind]))) : NaN);
  const total = (one, kind) => (kind === "disk" ? number(one.disk_read_bytes_s) + number(one.disk_written_bytes_s)
    : number(one.network_received_bytes_s) + number(one.network_sent_bytes_s));
  return [
    trend("CPU", (one) => one.cpu_percent ?? NaN, 100, percent(now.cpu_percent)),
    trend("memory", (one) => (one.memory_used_bytes === null ? NaN : (100 * one.memory_used_bytes) / one.memory_bytes), 100,
      percent(now.memory_used_bytes === null ? null : (100 * now.memory_used_bytes) / now.memory_bytes)),
    now.pressure ? trend("pressure", pressure, 20, percent(pressure(now))) : null,
    is_brief ? null : [trend("disk", (one) => total(one, "disk"), 1024 ** 2, rate(total(now, "disk"))),
    trend("network", (one) => total(one, "network"), 1024 ** 2, rate(total(now, "network")))],
  ];
}

function keep_focus(old, made) {
  const within = old.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  old.replaceWith(made);
  if (within) {
    const again = [...made.querySelectorAll("a, button")].find((one) => one.dataset.name === within);
    if (again) again.focus();
  }
}

function host_box(host, most, on, drag) {
  const id = `host-${host.name}`;
  const tank = h("div", { class: "tank", role: "group", "aria-label": `Guests of ${host.name}` });
  if (!host.last_seen.guests.length) tank.style.height = `${Math.round(70 + 110 * (host.memory / most))}px`;
  fill(tank, host.error ? [h("p", { class: "error" }, host.error), lost(host)] : tiles(host, on, drag));
  const verdict = h("p", { class: "verdict", role: "status" });
  const box = h("section", { class: `host${host.error ? " bad" : ""}`, "aria-labelledby": id },
    h("header", null,
      h("h2", { id }, h("a", { href: href("host", host.name), "data-name": host.name }, host.name)),
      host.maintenance ? h("span", { class: "badge warn", title: host.maintenance }, "maintenance") : null,
      host.error ? h("span", { class: "badge bad" }, "no response")
        : h("span", { class: "count" }, `${host.running} of ${counted(host.guests.length, "guest")} running`)),
    tank,
    names(host),
    host.error ? null : [h("div", { class: "meters" }), h("div", { class: "trends" })],
    verdict);
  droppable(box, verdict, host, on, drag);
  return box;
}

/** The guests that were last seen on a host that does not respond. They have no operations. */
function lost(host) {
  if (!host.last_seen.guests.length) return null;
  const words = `last seen on ${host.name}, which does not respond (since ${host.last_seen.at})`;
  return h("ul", { class: "lost", "aria-label": `Guests ${words}` },
    host.last_seen.guests.map((name) => h("li", {
      title: `${name}: ${words}`, "data-name": name, "data-state": "last seen",
    }, h("span", { class: "title" }, name), h("span", { class: "about" }, "last seen"))));
}

function tiles(host, on, drag) {
  const free = Math.max(0, host.memory - host.memory_used);
  const guests = host.guests.filter((one) => one.memory > 0);
  const own = host.memory_used - guests.reduce((all, one) => all + one.memory, 0);
  const items = guests.map((guest) => ({ guest, weight: guest.memory }))
    .sort((a, b) => b.weight - a.weight);
  if (own > 0) items.push({ own, weight: own });
  if (free > 0) items.push({ free, weight: free });
  const placed = squarified(items, RATIO);
  const found = placed.filter((one) => one.guest)
    .sort((a, b) => a.y - b.y || a.x - b.x)
    .map((one, at) => guest_tile(one, at === 0, on, drag));
  for (const one of placed) {
    if (one.guest) continue;
    const text = one.free ? `${size(one.free)} free` : `${size(one.own)} host and QEMU`;
    const kind = one.free ? "free" : "own";
    found.push(put(h("div", { class: `tile ${kind}${small(one)}` }, h("span", null, text)), one));
  }
  return found;
}

function guest_tile(place, first, on, drag) {
  const { guest } = place;
  const about = `${counted(guest.vcpus, "vCPU")} · ${size(guest.memory)}`;
  const used = h("i", { class: "used", "aria-hidden": "true" });
  used.style.height = `${guest.state === "running" ? Math.min(100, (guest.memory_now / guest.memory) * 100) : 0}%`;
  const made = h("button", {
    type: "button", class: `tile guest ${kind_of(guest.state)}${small(place)}`, draggable: "true",
    tabindex: first ? "0" : "-1", title: `${guest.name}: ${guest.state}, ${about}`,
    "aria-label": `${guest.name}, ${guest.state}, ${about}`,
    "data-name": guest.name, "data-state": guest.state,
    onclick: () => on.guest(guest),
    ondragstart: (event) => {
      drag.guest = guest;
      event.dataTransfer.setData("text/plain", guest.name);
      event.dataTransfer.effectAllowed = "move";
      document.body.classList.add("dragging");
    },
  }, used, h("span", { class: "title" }, guest.name), h("span", { class: "about" }, about));
  return put(made, place);
}

const small = ({ w, h: height }) => (height < 17 || w < 9 ? " tiny" : height < 34 || w < 20 ? " small" : "");

function put(element, { x, y, w, h: height }) {
  Object.assign(element.style, {
    left: `${x}%`, top: `${y}%`, width: `${w}%`, height: `${height}%`,
  });
  return element;
}

function droppable(box, verdict, host, on, drag) {
  let asked = null;
  box.addEventListener("dragover", (event) => {
    if (!drag.guest || drag.guest.host === host.name || host.error || !may("migrate")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
    if (asked === drag.guest) return;
    asked = drag.guest;
    box.classList.add("target");
    verdict.textContent = `checking the migration of ${asked.name} …`;
    on.over(asked, host).then(({ ok, text }) => {
      if (asked === null) return;
      verdict.textContent = text;
      box.classList.toggle("yes", ok);
      box.classList.toggle("no", !ok);
    });
  });
  box.addEventListener("dragleave", (event) => {
    if (box.contains(event.relatedTarget)) return;
    asked = null;
    clear(box);
  });
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    const guest = drag.guest;
    asked = null;
    if (guest && guest.host !== host.name) on.drop(guest, host);
  });
}

function clear(box) {
  box.classList.remove("target", "yes", "no");
  box.querySelector(".verdict").textContent = "";
}

function let_go(grid, drag) {
  drag.guest = null;
  document.body.classList.remove("dragging");
  for (const box of grid.querySelectorAll(".host.target")) clear(box);
}

const ITEMS = ".tile.guest, .names a";
const BOX = ".host, .host-page";

/** Move the focus among the guests of hosts by the arrow keys. */
export function arrows(event, grid) {
  const from = event.target.closest(ITEMS);
  if (!from) return;
  const is_tile = from.matches(".tile");
  const [all_of, first] = [is_tile ? ".tile.guest" : ".names a", is_tile ? ".tile.guest[tabindex='0']" : ".names a[tabindex='0']"];
  const all = [...from.closest(BOX).querySelectorAll(all_of)];
  const at = all.indexOf(from);
  const step = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
    Home: 0, End: all.length - 1 }[event.key];
  let to = step === undefined ? null : all[step];
  if (event.key === "PageDown" || event.key === "PageUp") {
    const boxes = [...grid.querySelectorAll(".host")].filter((one) => one.querySelector(first));
    const next = boxes[boxes.indexOf(from.closest(BOX)) + (event.key === "PageDown" ? 1 : -1)];
    to = next ? next.querySelector(first) : null;
  } else if (step === undefined) return;
  event.preventDefault();
  if (!to) return;
  for (const one of to.closest(BOX).querySelectorAll(all_of)) one.tabIndex = one === to ? 0 : -1;
  to.focus();
}
