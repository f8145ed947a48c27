// The page: its session and its views.

import { forget, login, logout, who } from "./api.js";
import { guest_card, host_card } from "./card.js";
import { deploy_dialog } from "./deploy.js";
import { button, fill, h, save, saved, table } from "./dom.js";
import { health_view } from "./health.js";
import { hosts_view } from "./hosts.js";
import { jobs_view } from "./jobs.js";
import { clock, counted, fits, size, sum } from "./model.js";
import { may_go, move_dialog } from "./move.js";
import { changed, open, shut, state } from "./store.js";

const VIEWS = { hosts: "Hosts", guests: "Guests", jobs: "Jobs", health: "Health" };
const MOST_ROWS = 200;

function theme(wanted) {
  const chosen = wanted || saved("salt-virt-theme") || "";
  if (chosen) document.documentElement.dataset.theme = chosen;
  if (wanted) save("salt-virt-theme", wanted);
}

const is_dark = () => (document.documentElement.dataset.theme
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function login_view(why) {
  const input = (id, label, more) => [h("label", { for: id }, label), h("input", { id, required: true, ...more })];
  const said = h("p", { class: "line bad", role: "alert" }, why || "");
  const user = input("user", "User", { autocomplete: "username", autocapitalize: "none" });
  const password = input("password", "Password", { type: "password", autocomplete: "current-password" });
  const eauth = input("eauth", "Authentication", { value: saved("salt-virt-eauth") || "pam", autocapitalize: "none" });
  const go = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", { class: "login" }, h("h1", null, "Salt Virt"), user, password, eauth, go, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.textContent = "";
    try {
      await login(user[1].value, password[1].value, eauth[1].value);
      save("salt-virt-eauth", eauth[1].value);
      cloud_view();
    } catch (exc) {
      said.textContent = exc.message;
      password[1].value = "";
      password[1].focus();
    } finally {
      go.disabled = false;
    }
  });
  fill(document.body, h("main", { class: "outside" }, form));
  user[1].focus();
}

let leave = () => {};

function ended(why) {
  leave();
  forget();
  login_view(why);
}

function cloud_view() {
  const words = h("input", { type: "search", id: "find", placeholder: "find hosts and guests", "aria-label": "Find hosts and guests" });
  const live = h("span", { class: "live", role: "status" });
  const totals = h("section", { class: "totals", "aria-label": "Totals" });
  const said = h("div", { class: "said", role: "status" });
  const counts = h("span", { class: "number" });
  const links = Object.entries(VIEWS).map(([name, label]) => h("a", { href: `#${name}` }, label, name === "jobs" ? counts : null));
  const body = h("main", { id: "body", tabindex: "-1" });
  const move = (guest, target) => move_dialog(guest, target);
  const to_guest = (guest) => guest_card(guest, move);
  const views = {
    hosts: hosts_view({
      guest: to_guest, host: (host) => host_card(host, to_guest),
      over: may_go, drop: (guest, host) => move(guest, host.name),
    }),
    guests: guests_view(to_guest), jobs: jobs_view(), health: health_view(ended),
  };
  const shade = button("", () => { theme(is_dark() ? "light" : "dark"); name_shade(); }, "quiet");
  const name_shade = () => { shade.textContent = is_dark() ? "Light" : "Dark"; };
  name_shade();

  fill(document.body,
    h("a", { class: "skip", href: "#body", onclick: (event) => { event.preventDefault(); body.focus(); } }, "Skip to content"),
    h("header", { class: "top" }, h("h1", null, "Salt Virt"),
      h("nav", { "aria-label": "Views" }, links), words, button("Deploy…", deploy_dialog, "primary"),
      live, shade, h("span", { class: "user" }, who().user), button("Log out", out, "quiet")),
    totals, body, views.jobs.strip, said);

  async function out() {
    leave();
    await logout();
    login_view("");
  }

  const current = () => (Object.hasOwn(VIEWS, location.hash.slice(1)) ? location.hash.slice(1) : "hosts");

  function show() {
    const name = current();
    for (const link of links) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${VIEWS[name]} – Salt Virt`;
    fill(body, h("h2", { class: "hidden" }, VIEWS[name]), views[name].element);
    draw();
  }

  function draw() {
    fill(totals, total_line());
    views[current()].draw(state.hosts, words.value.trim());
  }

  function draw_jobs() {
    const now = views.jobs.draw();
    counts.textContent = now ? ` ${now}` : "";
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

  const heard = [["cloud", draw], ["jobs", draw_jobs], ["live", draw_live], ["said", outcome],
    ["ended", (event) => ended(event.detail)]];
  for (const [name, listener] of heard) changed.addEventListener(name, listener);
  addEventListener("hashchange", show);
  words.addEventListener("input", draw);
  leave = () => {
    for (const [name, listener] of heard) changed.removeEventListener(name, listener);
    removeEventListener("hashchange", show);
    for (const one of document.querySelectorAll("dialog")) one.remove();
    shut();
    leave = () => {};
  };
  draw_live();
  draw_jobs();
  show();
  open(ended);
}

function total_line() {
  if (state.error) return h("p", { class: "line bad", role: "alert" }, state.error);
  if (!state.at) return h("p", { class: "line" }, "Querying all hosts …");
  const up = state.hosts.filter((one) => !one.error);
  const guests = up.flatMap((one) => one.guests);
  const on = guests.filter((one) => one.state === "running").length;
  const part = (word, used, all, show) => h("span", null, h("b", null, `${show(used)} of ${show(all)}`), ` ${word}`);
  const silent = state.hosts.length - up.length;
  const lost = sum(state.hosts.map((one) => one.last_seen.guests.length));
  return [
    h("span", null, h("b", null, state.hosts.length), ` host${state.hosts.length === 1 ? "" : "s"}`),
    silent ? h("span", { class: "bad" }, h("b", null, silent), " not responding") : null,
    state.disarmed ? h("span", { class: "bad" }, "high availability is ", h("b", null, "disarmed")) : null,
    h("span", null, h("b", null, `${on} of ${guests.length}`), " guests running"),
    lost ? h("span", { class: "bad" }, h("b", null, lost), " last seen on hosts that do not respond") : null,
    part("vCPUs allocated", sum(up.map((one) => one.vcpus_used)), sum(up.map((one) => one.vcpus)), String),
    part("memory allocated", sum(up.map((one) => one.memory_used)), sum(up.map((one) => one.memory)), size),
    h("span", { class: "when" }, `queried at ${clock(state.at)}`),
  ];
}

const lost_of = (host) => host.last_seen.guests
  .map((name) => ({ name, host: host.name, state: "last seen", lost: host.last_seen.at }));

const lost_row = (one) => [
  one.name, h("span", { class: "state lost", title: `since ${one.lost}` }, "last seen"),
  `${one.host}, which does not respond`, "", "",
];

function guests_view(on_guest) {
  const element = h("div");
  return {
    element,
    draw(hosts, words) {
      const all = hosts.flatMap((one) => [...one.guests, ...lost_of(one)])
        .filter((one) => !words || fits(words, one.name, one.host, one.state));
      const rows = all.slice(0, MOST_ROWS).map((one) => (one.lost ? lost_row(one) : [
        button(one.name, () => on_guest(one), "plain", { "data-name": one.key }),
        h("span", { class: `state ${one.state}` }, one.state), one.host, one.vcpus, size(one.memory),
      ]));
      const held = element.contains(document.activeElement) ? document.activeElement.dataset.name : null;
      fill(element, table([["guest", "state", "host", "vCPUs", "memory"], ...rows], "Guests"),
        all.length > rows.length ? h("p", { class: "line" }, `${rows.length} of ${counted(all.length, "guest")}: use the search field to find others`) : null);
      const again = held && [...element.querySelectorAll("button")].find((one) => one.dataset.name === held);
      if (again) again.focus();
    },
  };
}

theme();
if (window.top !== window.self) {
  fill(document.body, h("p", null, "This page cannot be embedded in another page."));
} else if (who()) {
  cloud_view();
} else {
  login_view("");
}

