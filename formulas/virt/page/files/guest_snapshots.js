// The snapshots of a guest, as a tree.

import { call } from "./api.js";
import { button, fill, h, hold, sure } from "./dom.js";
import { verdict } from "./model.js";
import { may } from "./rights.js";

/** Kinds of snapshots: their label, and the arguments of virt.snapshot. */
const KINDS = {
  automatic: ["kind that fits the guest", {}], disks: ["disks only", { disk_only: true }],
  memory: ["disks and memory", { disk_only: false }], quiesce: ["disks, file systems frozen by the agent", { quiesce: true }],
};

/** The tab. */
export function snapshots_tab(context) {
  const name = h("input", { "aria-label": "Name of the new snapshot", placeholder: "name, or empty", autocomplete: "off" });
  const kind = h("select", { "aria-label": "Kind of the new snapshot" }, Object.entries(KINDS).map(([value, [label]]) => h("option", { value }, label)));
  const list = h("ul", { class: "tree" });
  const element = h("div", null, !may("snapshot") ? null : h("form", { class: "actions", onsubmit: (event) => { event.preventDefault(); take(); } },
    name, kind, h("button", { type: "submit" }, "Take snapshot")), list);
  const own = () => context.guest.name;

  async function take() {
    const given = name.value.trim();
    const outcome = await context.change("snapshot", { ...(given ? { snapshot: given } : {}), ...KINDS[kind.value][1] }, [], true, "Taking a snapshot");
    if (outcome.result !== false) name.value = "";
    show();
  }

  async function back(one) {
    if (!await sure(`Revert to ${one}?`, `All changes of ${own()} since this snapshot are lost.`, "Revert")) return;
    await context.change("revert", { snapshot: one }, [], true, "Reverting");
    show();
  }

  async function remove(one) {
    if (!await sure(`Delete ${one}?`, "The guest and its disks do not change.", "Delete")) return;
    await context.change("delete_snapshots", {}, [own(), one], true, "Deleting");
    show();
  }

  const item = (one, all) => h("li", null,
    h("div", { class: "row" }, h("strong", null, one.name), one.current ? h("span", { class: "badge good" }, "current") : null,
      h("small", null, snapshot_words(one)), one.description ? h("p", null, String(one.description)) : null,
      h("span", { class: "actions" }, !may("revert") ? null : button("Revert…", () => back(one.name), "", { "aria-label": `Revert to ${one.name}…`, "data-name": `revert ${one.name}` }),
        !may("delete_snapshots") ? null : button("Delete…", () => remove(one.name), "danger", { "aria-label": `Delete ${one.name}…`, "data-name": `delete ${one.name}` }))),
    branch(all.filter((other) => other.parent === one.name && other !== one), all));
  const branch = (some, all) => (some.length ? h("ul", null, some.map((one) => item(one, all))) : null);

  async function show() {
    if (!list.childElementCount) fill(list, h("li", { class: "none" }, "…"));
    const answer = await call("snapshots", { name: own() }).then((data) => verdict(data, own()))
      .catch((exc) => ({ result: false, comment: exc.message }));
    const known = snapshots_in(answer);
    const names = new Set(known.map((one) => one.name));
    const roots = known.filter((one) => !names.has(one.parent) || one.parent === one.name);
    hold(list, () => fill(list, roots.length ? roots.map((one) => item(one, known))
      : h("li", { class: "empty" }, answer.result === false ? answer.comment : "No snapshots. A snapshot keeps the present state of the guest, to which you can revert.")));
  }

  return { element, draw() {}, show };
}

/** The snapshots in the answer of virt.snapshots. */
export function snapshots_in(answer) {
  const list = answer && answer.snapshots;
  return Array.isArray(list) ? list.filter((one) => one && typeof one === "object") : [];
}

/** The time of a snapshot, its kind, and the state of the guest in it. */
function snapshot_words(one) {
  return [one.created, one.external ? "external" : "internal", one.state].filter(Boolean).map(String).join(", ");
}
