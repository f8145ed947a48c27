// The page: its session, its frame and its navigation.

import { forget, logout, who } from "./api.js";
import { button, fill, h, save, saved, update } from "./dom.js";
import { strip_view } from "./jobs.js";
import { login_view } from "./login.js";
import { clock, size, sum } from "./model.js";
import { move_dialog } from "./move.js";
import { learn_rights, may } from "./rights.js";
import { go, here, href } from "./router.js";
import { changed, open, shut, state } from "./store.js";
import { VIEWS } from "./views.js";

const THEME = "salt-virt-theme";
// a pause in typing, after which the search is applied
const TYPING_MS = 120;
const DARK = matchMedia("(prefers-color-scheme: dark)");

function theme(wanted) {
  const chosen = wanted || saved(THEME) || "";
  if (chosen) document.documentElement.dataset.theme = chosen;
  if (wanted) save(THEME, wanted);
}

const is_dark = () => (document.documentElement.dataset.theme || (DARK.matches ? "dark" : "light")) === "dark";

let leave = () => {};

function ended(why) {
  leave();
  forget();
  login_view(why, cloud_view);
}

/** The links of the navigation, in their groups, and the element. */
function navigation() {
  const counts = h("span", { class: "number" });
  const links = new Map();
  const groups = new Map();
  for (const [name, { label, group }] of Object.entries(VIEWS)) {
    if (!group) continue;
    const link = h("a", { href: href(name) }, label, name === "jobs" ? counts : null);
    links.set(name, link);
    groups.set(group, [...(groups.get(group) || []), h("li", null, link)]);
  }
  const element = h("nav", { id: "views", "aria-label": "Views" }, [...groups].map(([group, items]) => [
    h("h2", { id: `views-${group}` }, group), h("ul", { "aria-labelledby": `views-${group}` }, items),
  ]));
  const menu = button("Menu", () => unfold(menu.getAttribute("aria-expanded") !== "true"), "menu",
    { "aria-expanded": "false", "aria-controls": "views" });
  const unfold = (is_open) => {
    menu.setAttribute("aria-expanded", String(is_open));
    element.classList.toggle("open", is_open);
    if (is_open) (element.querySelector("[aria-current]") || element.querySelector("a")).focus();
  };
  element.addEventListener("click", (event) => {
    if (!event.target.closest("a") || !element.classList.contains("open")) return;
    document.activeElement.blur(); // the view that follows gets the focus
    unfold(false);
  });
  for (const one of [element, menu]) {
    one.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !element.classList.contains("open")) return;
      unfold(false);
      menu.focus();
    });
  }
  return { element, menu, links, counts };
}

function shade_button() {
  const shade = button("", () => { theme(is_dark() ? "light" : "dark"); name(); }, "quiet");
  const name = () => { shade.textContent = is_dark() ? "Light" : "Dark"; };
  name();
  DARK.addEventListener("change", name);
  return [shade, () => DARK.removeEventListener("change", name)];
}

function cloud_view() {
  const words = h("input", { type: "search", id: "find", placeholder: "find hosts and guests", "aria-label": "Find hosts and guests" });
  const live = h("span", { class: "live", role: "status" });
  const totals = h("section", { class: "totals", "aria-label": "Totals" });
  const said = h("div", { class: "said", role: "status" });
  const body = h("main", { id: "body", tabindex: "-1" });
  const nav = navigation();
  const [shade, forget_shade] = shade_button();
  const strip = strip_view();
  const deploy = button("Deploy…", () => go("deploy"), "primary");
  const page = { ended, move: move_dialog };
  const views = new Map();
  let current = null;
  let subject = "";
  let typing = 0;

  fill(document.body,
    h("a", { class: "skip", href: "#body", onclick: (event) => { event.preventDefault(); body.focus(); } }, "Skip to content"),
    h("header", { class: "top" }, nav.menu, h("h1", null, h("a", { href: href("hosts") }, "Salt Virt")),
      words, deploy,
      live, shade, h("span", { class: "user" }, who().user), button("Log out", out, "quiet")),
    h("div", { class: "frame" }, nav.element, h("div", { class: "content" }, totals, body)), strip.element, said);

  async function out() {
    leave();
    await logout();
    login_view("", cloud_view);
  }

  function show() {
    const place = here();
    let name = Object.hasOwn(VIEWS, place.view) ? place.view : "hosts";
    if (VIEWS[name].of && !place.parts[0]) {
      name = VIEWS[name].of; // the address names no guest or host
      history.replaceState(null, "", href(name));
    }
    const { make, label, of } = VIEWS[name];
    if (!views.has(name)) views.set(name, { name, ...make(page) });
    const next = views.get(name);
    const about = href(name, place.parts[0] || "");
    // a question about one guest must not be answered on the page of another
    if (about !== subject) for (const one of document.querySelectorAll("dialog:not(.console)")) one.close();
    subject = about;
    if (current && current !== next) depart(current);
    for (const [one, link] of nav.links) {
      if (one === (of || name)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (next.show) next.show(place.parts, place.query);
    document.title = `${of && place.parts[0] ? place.parts[0] : label} – Salt Virt`;
    const is_new = current !== next;
    current = next;
    if (is_new) fill(body, of ? null : h("h2", { class: "hidden" }, label), next.element);
    draw();
    if (is_new) arrive(next, body);
  }

  function draw() {
    update(totals, total_line());
    current.draw(state.hosts, words.value.trim());
  }

  /** Hide what the user may not call. */
  function draw_rights() {
    deploy.hidden = !may("init");
    for (const [name, link] of nav.links) link.parentElement.hidden = !may(VIEWS[name].verb || "query");
    const place = here();
    if (current.show) current.show(place.parts, place.query);
    draw();
  }

  function draw_jobs() {
    const now = strip.draw();
    nav.counts.textContent = now ? ` ${now}` : "";
    update(totals, total_line());
    if (current && current.name === "jobs") current.draw(state.hosts, words.value.trim());
  }

  function draw_live() {
    live.textContent = state.live ? "live" : "every 30 s";
    live.title = state.live ? "updated by the master's events" : "no events are available: hosts are queried every 30 s";
    live.classList.toggle("on", state.live);
  }

  function outcome(event) {
    const failed = event.detail.result === false;
    fill(said, h("p", { class: failed ? "bad" : "good" }, event.detail.comment));
    clearTimeout(said.timer);
    said.timer = setTimeout(() => fill(said), failed ? 15000 : 6000);
  }

  const heard = [["cloud", draw], ["rights", draw_rights], ["jobs", draw_jobs], ["live", draw_live], ["said", outcome],
    ["ended", (event) => ended(event.detail)]];
  for (const [name, listener] of heard) changed.addEventListener(name, listener);
  addEventListener("hashchange", show);
  words.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(draw, TYPING_MS);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !["hosts", "guests"].includes(current.name)) go("guests");
  });
  leave = () => {
    for (const [name, listener] of heard) changed.removeEventListener(name, listener);
    removeEventListener("hashchange", show);
    if (current && current.leave) current.leave();
    clearTimeout(typing);
    forget_shade();
    for (const one of document.querySelectorAll("dialog")) one.remove();
    shut();
    leave = () => {};
  };
  draw_live();
  show();
  draw_jobs();
  open(ended);
  learn_rights().catch((exc) => ended(exc.message));
}

/** Leave a view, and remember what has the focus and how far it is scrolled. */
function depart(view) {
  const focused = view.element.contains(document.activeElement) ? document.activeElement : null;
  view.focused = focused ? focused.dataset.name : null;
  view.scrolled = scrollY;
  if (view.leave) view.leave();
}

/** Return the focus to where it was in a view, or set it to the beginning of the new content. */
function arrive(view, body) {
  const was = view.focused && [...view.element.querySelectorAll("[data-name]")].find((one) => (
    one.dataset.name === view.focused && one.matches("a, button")));
  scrollTo(0, view.scrolled || 0);
  if (was) was.focus({ preventScroll: Boolean(view.scrolled) });
  else if (document.activeElement === document.body || !document.activeElement.isConnected) body.focus({ preventScroll: true });
}

function total_line() {
  if (state.error) return h("p", { class: "line bad", role: "alert" }, state.error);
  if (!state.at) return h("p", { class: "line" }, "Querying all hosts …");
  if (!state.hosts.length) {
    return h("p", { class: "line" }, "No hosts: no minion matches virt:hosts of the master's configuration, or you may see none. ",
      "Accept the keys of your hypervisors (salt-key), and apply the formula libvirt to them.");
  }
  const up = state.hosts.filter((one) => !one.error);
  const guests = up.flatMap((one) => one.guests);
  const on = guests.filter((one) => one.state === "running").length;
  const part = (word, used, all, show) => h("span", null, h("b", null, `${show(used)} of ${show(all)}`), ` ${word}`);
  const silent = state.hosts.length - up.length;
  const lost = sum(state.hosts.map((one) => one.last_seen.guests.length));
  const kept = state.hosts.filter((one) => one.maintenance).length;
  const jobs = (result) => [...state.jobs.values()].filter((one) => one.result === result).length;
  const linked = (count, kind, text, to) => (count ? h("a", { class: kind, href: to }, h("b", null, count), ` ${text}`) : null);
  return [
    h("span", null, h("b", null, state.hosts.length), ` host${state.hosts.length === 1 ? "" : "s"}`, silent ? "" : state.hosts.length > 1 ? ", all respond" : ", responds"),
    silent ? h("span", { class: "bad" }, h("b", null, silent), " not responding") : null,
    linked(kept, "warn", "in maintenance", href("maintenance")),
    state.disarmed ? h("span", { class: "bad" }, "high availability is ", h("b", null, "disarmed")) : null,
    h("span", null, h("b", null, `${on} of ${guests.length}`), " guests running"),
    lost ? h("span", { class: "bad" }, h("b", null, lost), " last seen on hosts that do not respond") : null,
    linked(guests.filter((one) => one.state === "crashed").length, "bad", "crashed", `${href("guests")}?state=crashed`),
    linked(guests.filter((one) => one.state === "paused").length, "warn", "paused", `${href("guests")}?state=paused`),
    linked(jobs(undefined), "", `${jobs(undefined) === 1 ? "job" : "jobs"} running`, href("jobs")),
    linked(jobs(false), "bad", `${jobs(false) === 1 ? "job" : "jobs"} failed`, href("jobs")),
    part("vCPUs allocated", sum(up.map((one) => one.vcpus_used)), sum(up.map((one) => one.vcpus)), String),
    part("memory allocated", sum(up.map((one) => one.memory_used)), sum(up.map((one) => one.memory)), size),
    h("span", { class: "when" }, `queried at ${clock(state.at)}`),
  ];
}

theme();
if (window.top !== window.self) {
  fill(document.body, h("p", null, "This page cannot be embedded in another page."));
} else if (who()) {
  cloud_view();
} else {
  login_view("", cloud_view);
}
