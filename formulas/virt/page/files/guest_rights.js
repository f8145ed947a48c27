// The owner and the labels of a guest, which rights refer to.

import { LoggedOut } from "./api.js";
import { button, facts, h, update } from "./dom.js";
import { field, plan_dialog } from "./plan.js";
import { look, records } from "./records.js";
import { may } from "./rights.js";

/** The tab. */
export function rights_tab(context) {
  const element = h("div");
  const own = () => context.guest.name;
  const labels_of = () => records.labels.get(own()) || [];

  const ask = (title, fields, given, text) => plan_dialog({
    title: `${title}: ${own()}`, word: "Set", name: own(), fields, given, text,
    run: async (verb, kwarg) => { await context.change(verb, kwarg, [], false, title); look(true); },
  });

  function owner() {
    const user = field("new-owner", "User", { value: records.owner.get(own()) || "", help: "empty: no owner" });
    ask("Owner", [user], () => ["set_owner", { owner: user.value || null }], "Grants with owned, and quotas, refer to the owner.");
  }

  function labels() {
    const all = field("new-labels", "Labels", { value: labels_of().join(", "), help: "separated by commas; empty: none" });
    ask("Labels", [all], () => ["label", { labels: all.value.split(",").map((one) => one.trim()).filter(Boolean) }],
      "Grants with labels refer to them. They also select guests: label=… of each verb.");
  }

  function draw() {
    update(element, facts([["Owner", records.owner.get(own()) || "none"],
      ["Labels", labels_of().length ? labels_of().map((one) => h("span", { class: "badge" }, one)) : "none"]]),
      h("div", { class: "actions" }, may("set_owner") ? button("Owner…", owner) : null, may("label") ? button("Labels…", labels) : null),
      h("p", { class: "none" }, "Who may do what is configured in virt:rights on the master: see docs/how-to/rights.md."));
  }

  return {
    element, draw,
    show() { look(true).catch((exc) => { if (exc instanceof LoggedOut) context.page.ended(exc.message); }); },
  };
}
