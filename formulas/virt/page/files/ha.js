// High availability: its hosts, guests and rules, and what happens if a host fails.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, line, say, table } from "./dom.js";
import { counted, natural, verdict } from "./model.js";
import { href } from "./router.js";
import { empty, guest_links, sheet } from "./sheet.js";

/** The view. */
export function ha_view(page) {
  return sheet("High availability", "Guests that are started on another host if theirs fails.", "ha_status",
    (data) => content(data.ha || {}, page), page);
}

function content(ha, page) {
  if (ha.configured === false) {
    return empty("High availability is not configured",
      "Name the hosts and their fence devices in virt:ha:members of the master's configuration, restart salt-master, then:",
      ["salt-run virt.ha_setup"], ["salt-run virt.ha_enable GUEST"]);
  }
  const problems = Array.isArray(ha.problems) ? ha.problems.map(String) : [];
  const engine = ha.engine || {};
  const quorum = ha.quorum || {};
  return [
    h("div", { class: "cards" },
      figure(ha.armed ? "armed" : "disarmed", "reaction to failures", ha.armed === false),
      figure(engine.running ? engine.leader || (engine.leading ? "this master" : "no leader") : "stopped", "leader", !engine.running),
      figure(`${quorum.heard ?? "?"} of ${quorum.members ?? "?"}`, `hosts respond; ${quorum.needed ?? "?"} are needed`)),
    problems.length ? h("ul", { class: "problems" }, problems.map((one) => h("li", { class: "line bad" }, one)))
      : h("p", { class: ha.result === false ? "line bad" : "line good" }, String(ha.comment || "")),
    h("h3", null, "If a host fails"), simulation(ha, page),
    h("h3", null, "Hosts"), host_table(ha.hosts || {}),
    h("h3", null, "Guests"), guest_table(ha.guests || {}),
    h("h3", null, "Placement rules"), rule_table(ha.rules || {}),
  ];
}

const figure = (value, text, bad = false) => h("div", { class: bad ? "figure bad" : "figure" }, h("strong", null, value), h("span", null, text));
const sorted = (found) => Object.entries(found).sort(([a], [b]) => natural(a, b));
const state_of = (one, good) => h("span", { class: `badge ${good.includes(one.state) ? "good" : "bad"}` }, one.state);

function host_table(hosts) {
  return table([["host", "state", "watchdog", "fence devices", "if it fails", "reason"],
    ...sorted(hosts).map(([name, one]) => [h("a", { href: href("host", name) }, name), state_of(one, ["up"]), one.watchdog || "",
      (one.fences || []).join(", ") || "none", outlook(one), one.reason || ""])], "Hosts of high availability");
}

function outlook(one) {
  const moved = Object.keys(one.moved || {}).length;
  const lost = (one.unplaced || []).length;
  if (!moved && !lost) return "no guest is affected";
  return lost ? h("span", { class: "badge bad" }, `${moved} restarted, ${lost} without a place`) : `${counted(moved, "guest")} restarted elsewhere`;
}

function guest_table(guests) {
  const all = sorted(guests);
  if (!all.length) return h("p", { class: "none" }, "No guest yet: salt-run virt.ha_enable GUEST");
  return table([["guest", "state", "wanted", "host", "priority", "can run on", "reason"],
    ...all.map(([name, one]) => [guest_links([name]), state_of(one, ["started", "stopped", "ignored"]), one.desired_state || "",
      one.host || "", one.priority ?? "", (one.may_run_on || []).join(", "), one.binding || one.reason || ""])], "Guests of high availability");
}

const RULE = { affinity: "on the same host", anti_affinity: "on different hosts" };

function rule_table(rules) {
  const all = sorted(rules);
  if (!all.length) return h("p", { class: "none" }, "No rules: salt-run virt.ha_rule webs guests=web1,web2 anti_affinity=strict");
  return table([["rule", "guests", "they run"], ...all.map(([name, one]) => [name, guest_links(one.guests), rule_text(one)])], "Placement rules");
}

function rule_text(one) {
  const ranks = Object.entries(one.hosts || {}).map(([host, rank]) => `${host} (rank ${rank})`).join(", ");
  const kind = RULE[one.kind] || (ranks ? `on ${ranks}` : "");
  return `${kind}, ${one.strict === false ? "preferred" : "strictly"}`;
}

/** The choice of a host, and what its failure would do to the guests. */
function simulation(ha, page) {
  const names = Object.keys(ha.hosts || {}).sort(natural);
  const lose = h("select", { id: "lose" }, names.map((one) => h("option", { value: one }, one)));
  const said = line();
  const found = h("div");
  const go = button("What would happen?", simulate);

  async function simulate() {
    go.disabled = true;
    said.className = "line";
    said.textContent = `Simulating the failure of ${lose.value} with the current data of all hosts …`;
    fill(found);
    try {
      const data = verdict(await call("ha_simulate", { lose: lose.value }), lose.value);
      say(said, data);
      fill(found, outcome(data, lose.value));
    } catch (exc) {
      if (exc instanceof LoggedOut) { page.ended(exc.message); return; }
      say(said, { result: false, comment: exc.message });
    } finally {
      go.disabled = false;
    }
  }

  return h("div", { class: "simulation" },
    h("div", { class: "actions" }, h("label", { for: "lose" }, "Host that fails"), lose, go), said, found);
}

function outcome(data, lost) {
  const moved = Object.entries(data.moved || {});
  const unplaced = Object.entries(data.unplaced || {});
  const by_host = new Map();
  for (const [guest, host] of moved) by_host.set(host, [...(by_host.get(host) || []), guest]);
  if (!moved.length && !unplaced.length && data.moved) return h("p", { class: "none" }, `${lost} has no guests of high availability.`);
  return [
    h("ul", { class: "plain" }, [...by_host].sort(([a], [b]) => natural(a, b)).map(([host, guests]) => h("li", null,
      h("span", null, h("strong", null, host), ` starts ${counted(guests.length, "guest")}: `, guest_links(guests.sort(natural)))))),
    unplaced.length ? [h("p", { class: "line bad" }, `${counted(unplaced.length, "guest")} would stay down:`),
      table([["guest", "reason"], ...unplaced.map(([guest, why]) => [guest_links([guest]), String(why)])], "Guests that would stay down")] : null,
  ];
}
