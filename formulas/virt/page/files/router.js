// The address of each view: #VIEW/PART/PART?KEY=VALUE. Links, Back and a reload use it.

/** The view, its parts and its query in the location. */
export function here() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [view, ...parts] = path.split("/").map(decoded);
  return { view, parts, query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// half of a character, which no address can contain
const HALF = /[\ud800-\udfff]/gu;

/** The address of a view. */
export const href = (...parts) => `#${parts.map((part) => encodeURIComponent(String(part).replace(HALF, "\ufffd"))).join("/")}`;

/** Go to a view. */
export function go(...parts) {
  location.hash = href(...parts);
}

/** Set a key of the query without a new entry in the history; "" removes it. */
export function keep(key, value) {
  const { query } = here();
  if (value) query.set(key, value);
  else query.delete(key);
  const text = query.toString();
  history.replaceState(null, "", location.hash.split("?")[0] + (text ? `?${text}` : ""));
}
