// What happened to a guest: the entries of virt.log, and the events since the page was opened.

import { call } from "./api.js";
import { fill, h, table } from "./dom.js";
import { clock, number, refused } from "./model.js";
import { heard_of } from "./store.js";

/** The tab. */
export function history_tab(context) {
  const past = h("div");
  const events = h("ol", { class: "past" });
  const element = h("div", null, past, h("h3", null, "Events since the page was opened"), events);

  const outcome = (one) => h("span", { class: `badge ${one.result === true ? "good" : one.result === false ? "bad" : ""}` },
    one.state || (one.result === true ? "done" : one.result === false ? "failed" : "test"));
  const row = (one) => [
    new Date(one.time).toLocaleString([], { hour12: false }), String(one.verb || ""), outcome(one), String(one.user || ""),
    one.seconds ? `${Math.round(number(one.seconds))} s` : "", String(one.comment || ""),
  ];

  async function show() {
    const { name } = context.guest;
    try {
      const data = await call("log", { name });
      const why = refused(data);
      const entries = data.log && Array.isArray(data.log.entries) ? [...data.log.entries].reverse() : [];
      fill(past, why ? h("p", { class: "empty" }, why)
        : entries.length ? table([["time", "operation", "result", "user", "took", "comment"], ...entries.map(row)], `History of ${name}`)
          : h("p", { class: "empty" }, "No operations are recorded."));
    } catch (exc) {
      fill(past, h("p", { class: "empty" }, exc.message));
    }
  }

  return {
    element, show,
    draw(guest) {
      const all = heard_of(guest.name);
      fill(events, all.length ? all.map((one) => h("li", null, h("time", null, clock(one.at)), ` ${one.operation}: ${one.text}`))
        : h("li", { class: "none" }, "no events since the page was opened"));
    },
  };
}
