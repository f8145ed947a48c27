// The deployments: the guests that each lists, and which of them exist.

import { bytes, counted, fits, natural, number, size, stamp } from "./model.js";
import { h, table } from "./dom.js";
import { href } from "./router.js";
import { empty, guest_links, sheet } from "./sheet.js";

/** status: [what it means, the badge]. */
const STATUSES = {
  present: ["present", "good"], missing: ["missing", "bad"], unknown: ["unknown: a host does not respond", "warn"],
  to_remove: ["to be removed", "warn"], kept: ["no longer listed", "warn"],
};

/** The view. */
export function deployments_view(page) {
  let chosen = "";
  const view = sheet("Deployments", "Lists of guests that virt.deployed creates. Each is compared with the guests that the hosts have.", "deployments",
    (data, words) => content(data, words, chosen), page);
  return {
    ...view,
    show([wanted = ""]) {
      chosen = wanted;
      view.redraw();
    },
  };
}

function content(data, words, chosen) {
  const answer = data.deployments || {};
  const silent = Object.entries(answer.unreachable || {}).sort(([a], [b]) => natural(a, b))
    .map(([host, why]) => h("p", { class: "line bad" }, `${host}: ${why}`));
  const all = Object.entries(answer.deployments || {}).sort(([a], [b]) => natural(a, b));
  if (chosen) return [silent, details(chosen, (answer.deployments || {})[chosen], words)];
  if (!all.length) {
    return [silent, empty("No deployments",
      "List the guests of a deployment in the pillar virt_deploy of the master, and create those that do not exist:",
      ["salt-run state.orchestrate virt.orch.deploy test=True"], ["salt-run state.orchestrate virt.orch.deploy"])];
  }
  const rows = all.filter(([name, one]) => !words || fits(words, name, String(one.user || ""), ...Object.keys(one.guests || {})))
    .map(([name, one]) => [h("a", { href: href("deployments", name), "data-name": name }, name), badges(one), stamp(one.time), String(one.user || ""), ended(one)]);
  return [silent, table([["deployment", "guests", "last call", "user", "result"], ...rows], "Deployments")];
}

/** The numbers of its guests, by status. */
function badges(one) {
  const counts = Object.entries(STATUSES).map(([status, [text, kind]]) => [number((one.counts || {})[status]), text, kind]);
  const some = counts.filter(([count, text]) => count || text === "present");
  return h("span", { class: "badges" }, some.map(([count, text, kind]) => [h("span", { class: `badge ${kind}` }, `${count} ${text}`), " "]));
}

function ended(one) {
  if (!one.time) return "";
  const [text, kind] = one.result === true ? ["done", "good"] : one.result === false ? ["failed", "bad"] : ["not finished", "warn"];
  return h("span", { class: `badge ${kind}` }, text);
}

function details(name, one, words) {
  const back = h("p", { class: "crumbs" }, h("a", { href: href("deployments"), "data-name": name }, "All deployments"));
  if (!one) return [back, h("p", { class: "empty" }, `No deployment ${name}.`)];
  const rows = Object.entries(one.guests || {}).sort(([a], [b]) => natural(a, b))
    .filter(([guest, of]) => !words || fits(words, guest, of.status, of.host || "", of.image || ""))
    .map(([guest, of]) => [of.host ? guest_links([guest]) : guest, h("span", { class: `badge ${(STATUSES[of.status] || [])[1] || ""}` }, (STATUSES[of.status] || [String(of.status)])[0]),
      String(of.host || ""), String(of.state || ""), of.cpu === null ? "" : number(of.cpu), of.memory_mib === null ? "" : size(number(of.memory_mib)),
      of.size_bytes ? bytes(of.size_bytes) : "", String(of.image || ""), String(of.reason || "")]);
  return [back, h("p", { class: "badges" }, h("strong", null, name), " ", badges(one)),
    one.time ? h("p", { class: "none" }, `Last call: ${stamp(one.time)} by ${one.user || "unknown"}, `, ended(one),
      one.remove ? ". Guests that are no longer listed are removed." : ". Guests that are no longer listed are kept.") : null,
    rows.length ? table([["guest", "status", "host", "state", "vCPUs", "memory", "disks", "image", "reason"], ...rows], `${counted(rows.length, "guest")} of ${name}`)
      : h("p", { class: "none" }, words ? "No guest fits the search." : "No guests.")];
}
