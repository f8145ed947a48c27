// A view of the answer of one verb: its heading, when it was queried, and its content.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, hold, line, say } from "./dom.js";
import { clock, refused } from "./model.js";
import { href } from "./router.js";

const FRESH_MS = 60000;

/** The view. about: what it shows, as a sentence. fun: the verb. content: function of its answer and
 * the search words to elements. */
export function sheet(title, about, fun, content, page) {
  const body = h("div", { class: "sheet-body" }, h("p", { class: "none" }, "Querying …"));
  const when = h("span", { class: "none" });
  // a button that is disabled would lose the focus
  const again = button("Refresh", () => { if (!busy) look(); }, "quiet", { "aria-label": `Refresh: ${title}` });
  const said = line();
  const element = h("section", { class: "sheet" },
    h("header", null, h("h3", null, title), when, again), about ? h("p", { class: "none" }, about) : null, said, body);
  let data = null;
  let at = 0;
  let words = "";
  let busy = false;

  async function look() {
    busy = true;
    at = Date.now();
    try {
      const found = await call(fun);
      const why = refused(found);
      data = why ? null : found;
      hold(body, () => fill(body, why ? h("p", { class: "line bad" }, why) : content(found, words)), again);
      when.textContent = `queried at ${clock(at)}`;
    } catch (exc) {
      if (exc instanceof LoggedOut) { page.ended(exc.message); return; }
      data = null;
      fill(body, h("p", { class: "line bad" }, exc.message));
    } finally {
      busy = false;
    }
  }

  return {
    element, look,
    /** Draw the content again, of the same answer. */
    redraw() { if (data) hold(body, () => fill(body, content(data, words))); },
    /** Show the result of an operation. */
    say(outcome) { say(said, outcome); },
    draw(_hosts, wanted) {
      const is_new = wanted !== words;
      words = wanted;
      if (Date.now() - at > FRESH_MS && !busy) look();
      else if (is_new) this.redraw();
    },
  };
}

/** What to do where there is nothing: a title and sentences, of which those in a list are commands. */
export function empty(title, ...sentences) {
  return h("div", { class: "empty" }, h("p", null, h("strong", null, title)),
    sentences.map((one) => h("p", null, Array.isArray(one) ? h("code", null, one[0]) : one)));
}

/** Links to guests, the first few of many. */
export function guest_links(names, most = 12) {
  const list = Array.isArray(names) ? names.map(String) : [];
  return h("span", { class: "links" },
    list.slice(0, most).map((name, place) => [place ? ", " : "", h("a", { href: href("guest", name) }, name)]),
    list.length > most ? ` and ${list.length - most} more` : null);
}

/** The hosts of an answer, sorted: [name, data] of those that answered, and lines about the others. */
export function answered(by_host, natural) {
  const all = Object.entries(by_host || {}).filter(([, one]) => one && typeof one === "object")
    .sort(([a], [b]) => natural(a, b));
  const silent = all.filter(([, one]) => one.error)
    .map(([name, one]) => h("p", { class: "line bad" }, `${name}: ${one.error}`));
  return [all.filter(([, one]) => !one.error), silent];
}
