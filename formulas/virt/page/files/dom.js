// Elements of the page. Data from the server only ever becomes text.

/** A new element. attributes: `class`, `on…` (a listener), properties, or attributes; null omits
 * one. children: elements, texts, lists of them, or null. */
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

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Make the children of an element equal to others, and keep each one that can be: a press, a
 * selection or the focus in it survives. A button that differs is replaced, because its listener may
 * be another one; other listeners that are kept must not depend on what differs. */
export function update(element, ...children) {
  const wanted = flat(children);
  wanted.forEach((one, at) => {
    const there = element.childNodes[at];
    if (!there) element.append(one);
    else if (there === one || there.isEqualNode(one)) return;
    else if (there.nodeName !== one.nodeName || one.nodeName === "BUTTON") there.replaceWith(one);
    else become(there, one);
  });
  while (element.childNodes.length > wanted.length) element.lastChild.remove();
  return element;
}

function become(there, one) {
  if (there.nodeType === Node.TEXT_NODE) {
    there.data = one.data;
    return;
  }
  for (const name of there.getAttributeNames()) if (!one.hasAttribute(name)) there.removeAttribute(name);
  for (const name of one.getAttributeNames()) {
    // the page's policy forbids the attribute
    if (name === "style") there.style.cssText = one.style.cssText;
    else if (there.getAttribute(name) !== one.getAttribute(name)) there.setAttribute(name, one.getAttribute(name));
  }
  update(there, [...one.childNodes]);
}

/** Give an element the children of a list of [key, print, make], in that order. A child whose print
 * has changed becomes equal to a new one, as by `update`. known: a Map, which keeps them. */
export function keep(element, known, items) {
  const wanted = new Set(items.map(([key, print, make]) => {
    const there = known.get(key);
    if (!there) known.set(key, { print, element: make() });
    else if (there.print !== print) {
      become(there.element, make());
      there.print = print;
    }
    return known.get(key).element;
  }));
  for (const [key, one] of known) {
    if (wanted.has(one.element)) continue;
    known.delete(key);
    one.element.remove();
  }
  [...wanted].forEach((one, at) => {
    if (element.children[at] !== one) element.insertBefore(one, element.children[at] || null);
  });
  return element;
}

/** Change an element's content, and return the focus to what has the same `data-name` in it. otherwise:
 * what gets the focus if that is gone. */
export function hold(element, change, otherwise = null) {
  const name = element.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  change();
  const again = name && !(document.activeElement.dataset.name === name && element.contains(document.activeElement))
    ? [...element.querySelectorAll("[data-name]")].find((one) => one.dataset.name === name && one.matches("a, button, input, select")) : null;
  if (again) again.focus({ preventScroll: true });
  else if (name && otherwise && document.activeElement === document.body) otherwise.focus({ preventScroll: true });
}

/** A button. kind: "primary", "danger" or "". */
export function button(text, act, kind = "", more = {}) {
  return h("button", { type: "button", class: kind, onclick: act, ...more }, text);
}

/** A labelled bar. part: fraction that is filled, 0 to 1. used: fraction of a second, narrower bar, or
 * null. */
export function meter(name, part, text, used = null) {
  const full = Math.max(0, Math.min(1, part || 0));
  const bar = h("div", { class: "bar" });
  bar.style.width = `${full * 100}%`;
  const inner = used === null ? null : h("div", { class: "in-use" });
  if (inner) inner.style.width = `${Math.max(0, Math.min(1, used)) * 100}%`;
  const level = full > 0.95 ? "full" : full > 0.8 ? "high" : "";
  return h("div", { class: `meter ${level}` },
    h("span", { class: "name" }, name),
    h("div", {
      class: "track", role: "meter", "aria-label": name, "aria-valuemin": "0",
      "aria-valuemax": "100", "aria-valuenow": String(Math.round(full * 100)),
      "aria-valuetext": text,
    }, bar, inner),
    h("span", { class: "value" }, text));
}

/** A table. rows: lists of texts or elements; the first one is the header. */
export function table(rows, caption) {
  const [head, ...body] = rows;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, head.map((one) => (one === "" ? h("td") : h("th", { scope: "col" }, one))))),
      h("tbody", null, body.map((row) => h("tr", null, row.map((one) => h("td", null, one)))))));
}

/** A list of names and values. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** Open a dialog, which is removed when it is closed. kind: its class, or "". */
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

/** Ask for confirmation of an operation that cannot be undone. Returns a promise of the answer. */
export function sure(title, text, word) {
  return new Promise((answer) => {
    let said = false;
    const made = dialog(title, "", h("p", null, text),
      h("footer", null,
        button("Cancel", () => made.close()),
        button(word, () => { said = true; made.close(); }, "danger")));
    made.addEventListener("close", () => answer(said));
  });
}

/** An empty status line. */
export function line() {
  return h("p", { class: "line", role: "status" });
}

/** Show the result of an operation in a status line. */
export function say(element, said) {
  element.textContent = said.comment || "";
  element.classList.toggle("bad", said.result === false);
  element.classList.toggle("good", said.result === true || said.result === null);
}

/** A value from the browser's storage, or null, also if the browser blocks storage. */
export function saved(key, storage = "localStorage") {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}

/** Write a value to the browser's storage, if it permits that; null removes the value. */
export function save(key, value, storage = "localStorage") {
  try {
    if (value === null) window[storage].removeItem(key);
    else window[storage].setItem(key, value);
  } catch {
    // storage is blocked
  }
}
