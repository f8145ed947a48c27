// A host: its capacity, its guests, and its operations.

import { call, LoggedOut } from "./api.js";
import { button, facts, fill, h, line, say, table, update } from "./dom.js";
import { arrows, host_meters, names, trends } from "./hosts.js";
import { counted, size, verdict } from "./model.js";
import { may } from "./rights.js";
import { href } from "./router.js";
import { act, state } from "./store.js";
import { host_usage, latest, sample } from "./usage.js";

/** The view. */
export function host_view(page) {
  let name = "";
  const body = h("div");
  const said = line();
  const plan = h("div");
  const reason = h("input", { id: "reason", placeholder: "reason", "aria-label": "Reason" });
  const act_on = h("div", { class: "actions" });
  const heading = h("h2", { tabindex: "-1" });
  const element = h("article", { class: "host-page" },
    h("p", { class: "crumbs" }, h("a", { href: href("hosts") }, "Hosts")), heading, act_on, said, plan, body);

  body.addEventListener("keydown", (event) => arrows(event, element));

  async function evacuate() {
    said.textContent = "Planning the evacuation …";
    fill(plan);
    const would = await tried("evacuate", { host: name, test: true });
    say(said, would.left && Object.keys(would.left).length ? { ...would, result: false } : would);
    if (would.result === false && !would.table) return;
    fill(plan, would.table ? table(would.table, "Planned migrations") : null,
      h("div", { class: "actions" }, reason, button(`Evacuate ${name}`, async () => {
        fill(plan);
        said.textContent = `Evacuating ${name} …`;
        const kwarg = { host: name, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) };
        const end = await act("evacuate", name, kwarg, [], true);
        say(said, end);
        if (end.left && Object.keys(end.left).length) {
          fill(plan, table([["guest", "reason"], ...Object.entries(end.left).map(([a, b]) => [a, String(b)])], "Guests that remain"));
        }
      }, "danger")));
    reason.focus();
  }

  async function restore() {
    said.textContent = "Migrating the guests back …";
    say(said, await act("restore", name, { host: name }, [], true));
  }

  async function tried(fun, kwarg) {
    try {
      return verdict(await call(fun, kwarg), name);
    } catch (exc) {
      return { result: false, comment: exc.message };
    }
  }

  function draw() {
    const host = state.hosts.find((one) => one.name === name);
    heading.textContent = name;
    // their listeners know the name of the host only when they run
    update(act_on, host && may("evacuate") ? button("Evacuate…", evacuate) : null,
      host && host.maintenance && may("restore") ? button("End maintenance", restore, "primary") : null);
    if (!host) {
      update(body, h("p", { class: "empty" }, state.at ? `No host ${name}.` : "Querying all hosts …"));
      return;
    }
    const samples = host_usage(name);
    sample().catch((exc) => { if (exc instanceof LoggedOut) page.ended(exc.message); });
    update(body,
      host.error ? h("p", { class: "line bad" }, host.error) : null,
      host.maintenance ? h("p", { class: "line bad" }, `in maintenance: ${host.maintenance}`) : null,
      host.error ? null : h("div", { class: "meters wide" }, host_meters(host, latest(samples))),
      samples.length ? h("div", { class: "trends wide" }, trends(samples)) : null,
      facts([["CPUs", host.cpus], ["Memory", size(host.physical)], ["Guests", `${host.running} of ${counted(host.guests.length, "guest")} running`],
        ["Hypervisors", host.types.join(", ")]]),
      names(host));
  }

  return {
    element, draw,
    show([wanted = ""]) {
      if (wanted === name) return;
      name = wanted;
      fill(plan);
      say(said, { comment: "" });
    },
  };
}
