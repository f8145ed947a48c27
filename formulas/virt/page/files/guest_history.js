// What happened to a guest.

import { fill, h } from "./dom.js";
import { clock } from "./model.js";
import { heard_of } from "./store.js";

/** The tab. */
export function history_tab() {
  const past = h("ol", { class: "past" });
  return {
    element: past,
    draw(guest) {
      const all = heard_of(guest.name);
      fill(past, all.length ? all.map((one) => h("li", null, h("time", null, clock(one.at)), ` ${one.operation}: ${one.text}`))
        : h("li", { class: "none" }, "no events since the page was opened"));
    },
  };
}
