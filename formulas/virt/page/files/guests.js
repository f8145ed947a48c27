// The guests as a table.

import { button, fill, h, table } from "./dom.js";
import { counted, fits, size } from "./model.js";
import { go } from "./router.js";

const MOST_ROWS = 200;

const lost_of = (host) => host.last_seen.guests
  .map((name) => ({ name, host: host.name, state: "last seen", lost: host.last_seen.at }));

const lost_row = (one) => [
  one.name, h("span", { class: "state lost", title: `since ${one.lost}` }, "last seen"),
  `${one.host}, which does not respond`, "", "",
];

/** The view. */
export function guests_view() {
  const element = h("div");
  return {
    element,
    draw(hosts, words) {
      const all = hosts.flatMap((one) => [...one.guests, ...lost_of(one)])
        .filter((one) => !words || fits(words, one.name, one.host, one.state));
      const rows = all.slice(0, MOST_ROWS).map((one) => (one.lost ? lost_row(one) : [
        button(one.name, () => go("guest", one.name), "plain", { "data-name": one.key }),
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
