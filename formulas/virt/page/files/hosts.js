// Hosts as boxes, with guests as tiles in proportion to their allocated memory.

import { button, fill, h, meter } from "./dom.js";
import { squarified } from "./layout.js";
import { counted, fits, size } from "./model.js";
import { may_go } from "./move.js";
import { go, href } from "./router.js";

const RATIO = 2.4;

/** The view. */
export function hosts_view(page) {
  const on = {
    guest: (guest) => go("guest", guest.name), over: may_go,
    drop: (guest, host) => page.move(guest, host.name),
  };
  const boxes = new Map();
  const grid = h("div", { class: "hosts" });
  const drag = { guest: null };

  grid.addEventListener("keydown", (event) => arrows(event, grid));
  grid.addEventListener("dragend", () => let_go(grid, drag));

  function draw(hosts, words) {
    const most = Math.max(1, ...hosts.map((one) => one.memory));
    const shown = [];
    for (const host of hosts) {
      const print = JSON.stringify([host, most]);
      let box = boxes.get(host.name);
      if (!box || box.print !== print) {
        const element = host_box(host, most, on, drag);
        if (box) keep_focus(box.element, element);
        box = { print, element, host };
        boxes.set(host.name, box);
      }
      const whole = !words || fits(words, host.name, host.error, host.maintenance);
      let found = whole;
      for (const tile of box.element.querySelectorAll(".tile.guest, .lost li")) {
        const hit = whole || fits(words, tile.dataset.name, tile.dataset.state);
        tile.classList.toggle("dim", !hit);
        found = found || hit;
      }
      if (found) shown.push(box.element);
    }
    const names = new Set(hosts.map((one) => one.name));
    for (const name of boxes.keys()) if (!names.has(name)) boxes.delete(name);
    const same = grid.children.length === shown.length
      && shown.every((one, at) => grid.children[at] === one);
    if (!same) {
      const focused = grid.contains(document.activeElement) ? document.activeElement : null;
      fill(grid, shown);
      if (focused && focused.isConnected) focused.focus();
    }
  }

  return { element: grid, draw };
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
    host.error ? null : h("div", { class: "meters" },
      meter("memory", host.memory_used / host.memory, `${size(host.memory_used)} of ${size(host.memory)}`),
      meter("vCPUs", host.vcpus_used / host.vcpus, `${host.vcpus_used} of ${host.vcpus}`),
      host.disk === null ? null
        : meter("disk", host.disk_used / host.disk, `${size(host.disk_used * 1024)} of ${size(host.disk * 1024)}`)),
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
  const kind = ["running", "paused", "shutdown"].includes(guest.state) ? guest.state : "other";
  const made = h("button", {
    type: "button", class: `tile guest ${kind}${small(place)}`, draggable: "true",
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
    if (!drag.guest || drag.guest.host === host.name || host.error) return;
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

function arrows(event, grid) {
  const from = event.target.closest(".tile.guest");
  if (!from) return;
  const all = [...from.parentElement.querySelectorAll(".tile.guest")];
  const at = all.indexOf(from);
  const step = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
    Home: 0, End: all.length - 1 }[event.key];
  let to = step === undefined ? null : all[step];
  if (event.key === "PageDown" || event.key === "PageUp") {
    const boxes = [...grid.querySelectorAll(".host")].filter((one) => one.querySelector(".tile.guest"));
    const next = boxes[boxes.indexOf(from.closest(".host")) + (event.key === "PageDown" ? 1 : -1)];
    to = next ? next.querySelector(".tile.guest[tabindex='0']") : null;
  } else if (step === undefined) return;
  event.preventDefault();
  if (!to) return;
  for (const one of to.parentElement.querySelectorAll(".tile.guest")) one.tabIndex = one === to ? 0 : -1;
  to.focus();
}
