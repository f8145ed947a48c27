// Elements of the page. What a server says only ever becomes text here.

/** A new element. attributes: `class`, `on…` (a listener), properties, or attributes; null leaves
 * one out. children: elements, texts, lists of them, or null. */
export function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...flat(children));
  return made;
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));
}

/** Give an element other children. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** A button. kind: "primary", "danger" or "". */
export function button(text, act, kind = "", more = {}) {
  return h("button", { type: "button", class: kind, onclick: act, ...more }, text);
}

/** A labelled bar. part: how much of it is full, 0 to 1. */
export function meter(name, part, text) {
  const full = Math.max(0, Math.min(1, part || 0));
  const bar = h("div", { class: "bar" });
  bar.style.width = `${full * 100}%`;
  const level = full > 0.95 ? "full" : full > 0.8 ? "high" : "";
  return h("div", { class: `meter ${level}` },
    h("span", { class: "name" }, name),
    h("div", {
      class: "track", role: "meter", "aria-label": name, "aria-valuemin": "0",
      "aria-valuemax": "100", "aria-valuenow": String(Math.round(full * 100)),
      "aria-valuetext": text,
    }, bar),
    h("span", { class: "value" }, text));
}

/** A table. rows: lists of texts or elements; the first is the head's. */
export function table(rows, caption) {
  const [head, ...body] = rows;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, head.map((one) => (one === "" ? h("td") : h("th", { scope: "col" }, one))))),
      h("tbody", null, body.map((row) => h("tr", null, row.map((one) => h("td", null, one)))))));
}

/** Names and values, one under the other. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** A dialog that is open, and is gone when it is closed. kind: "drawer" at the side, or "". */
export function dialog(title, kind, ...children) {
  const heading = h("h2", { tabindex: "-1" }, title);
  const made = h("dialog", { class: kind, "aria-label": title },
    h("header", null, heading,
      button("×", () => made.close(), "quiet", { "aria-label": "Close" })),
    ...children);
  made.addEventListener("close", () => made.remove());
  made.addEventListener("click", (event) => { if (event.target === made) made.close(); });
  document.body.append(made);
  made.showModal();
  heading.focus();
  return made;
}

/** A value that this browser keeps, or null: a browser may block storage, and all else works. */
export function saved(key, storage = "localStorage") {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}

/** Keep a value in this browser, if it allows that; null removes it. */
export function save(key, value, storage = "localStorage") {
  try {
    if (value === null) window[storage].removeItem(key);
    else window[storage].setItem(key, value);
  } catch {
    // nothing is kept
  }
}
