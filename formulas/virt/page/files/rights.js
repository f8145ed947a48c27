// The verbs that the user may call, at least for some guest, and their arguments, as virt.help lists
// them. What the user may not call is not offered; the runner checks each call anyway.

import { call, LoggedOut } from "./api.js";
import { changed } from "./store.js";

// verb to the arguments that the user may pass; null: all
let known = null;
let print = "";

/** Whether the user may call a verb with arguments; true before that is known. */
export const may = (verb, ...words) => !known || (known.has(verb) && words.every((word) => (known.get(verb) || words).includes(word)));

/** What the user may call, as a text that changes with it. */
export const rights_print = () => print;

/** Query the rights, and redraw. Throws LoggedOut. */
export async function learn_rights() {
  try {
    const groups = Object.values(await call("help")).filter((group) => group && Array.isArray(group.verbs));
    const limits = Object.assign({}, ...groups.map((group) => group.arguments));
    const verbs = groups.flatMap((group) => group.verbs).map((verb) => [String(verb), Object.hasOwn(limits, verb) ? limits[verb] : null]);
    known = verbs.length ? new Map(verbs) : null;
    print = JSON.stringify(verbs);
  } catch (exc) {
    if (exc instanceof LoggedOut) throw exc;
    return; // the master is older, or help is not granted
  }
  changed.dispatchEvent(new Event("rights"));
}

changed.addEventListener("left", () => { known = null; print = ""; });
