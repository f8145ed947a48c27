// The plan that balances the load of the hosts, and its execution.

import { button, h, sure, table } from "./dom.js";
import { counted, number } from "./model.js";
import { guest_links, sheet } from "./sheet.js";
import { act } from "./store.js";

/** The view. */
export function rebalance_view(page) {
  const view = sheet("Rebalance", "Migrations that would spread the guests evenly over the hosts.", "rebalance",
    (data) => content(data, apply), page);

  async function apply(count) {
    const text = `${counted(count, "guest")} will be migrated while running. After each migration both hosts are queried again, and the rest is planned anew.`;
    if (!await sure("Rebalance the cloud", text, `Migrate ${counted(count, "guest")}`)) return;
    await act("rebalance", "rebalance", { apply: true }, [], true);
    await view.look();
  }

  return view;
}

function content(data, apply) {
  const found = data.rebalance || {};
  const moved = Object.entries((found.changes && found.changes.moved) || {});
  const stay = Object.entries(found.stay || {});
  const score = number(found.score);
  const [, ...rows] = Array.isArray(found.table) ? found.table : [[]];
  const moves = rows.filter((row) => row[1]);
  return [
    h("div", { class: "cards" },
      h("div", { class: "figure" }, h("strong", null, score.toFixed(3)), h("span", null, "imbalance now")),
      moves.length ? h("div", { class: "figure" }, h("strong", null, number(moves.at(-1)[3]).toFixed(3)), h("span", null, "after all migrations")) : null,
      h("div", { class: "figure" }, h("strong", null, moved.length), h("span", null, moved.length === 1 ? "migration" : "migrations"))),
    h("p", { class: "none" }, "The imbalance is the standard deviation of the hosts' allocated memory plus half that of their vCPUs, as fractions: 0 means equally loaded hosts."),
    h("p", { class: moved.length ? "line" : "line good" }, moved.length ? String(found.comment || "") : `Nothing to do: ${found.comment || ""}`),
    moves.length ? table([["", "guest", "from", "to", "imbalance after it"],
      ...moves.map(([guest, from, to, after], place) => [place + 1, guest_links([guest]), from, to, number(after).toFixed(3)])], "Planned migrations") : null,
    stay.length ? [h("h3", null, "Guests that stay"), table([["guest", "reason"], ...stay.map(([guest, why]) => [guest_links([guest]), String(why)])], "Guests that stay")] : null,
    moved.length ? h("div", { class: "actions" }, button(`Migrate ${counted(moved.length, "guest")}…`, () => apply(moved.length), "primary")) : null,
  ];
}
