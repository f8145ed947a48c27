// The verbs that the user may call, at least for some guest, as virt.help lists them. What the user may
// not call is not offered; the runner checks each call anyway.

import { call, LoggedOut } from "./api.js";
import { changed } from "./store.js";

let known = null;

/** Whether the user may call a verb; true before that is known. */
export const may = (verb) => !known || known.has(verb);

/** What the user may call, as a text that changes with it. */
export const rights_print = () => (known ? [...known].join(" ") : "");

/** Query the rights, and redraw. Throws LoggedOut. */
export async function learn_rights() {
  try {
    const verbs = Object.values(await call("help")).flatMap((group) => (group && group.verbs) || []);
    known = verbs.length ? new Set(verbs.map(String)) : null;
  } catch (exc) {
    if (exc instanceof LoggedOut) throw exc;
    return; // the master is older, or help is not granted
  }
  changed.dispatchEvent(new Event("rights"));
}

changed.addEventListener("left", () => { known = null; });
