// A guest's display in noVNC, or its serial port in a terminal. Each connection uses a one-time ticket
// with a secret that is generated here.

import { call, Failed } from "./api.js";
import { button, fill, h } from "./dom.js";
import { line, secret } from "./line.js";
import { verdict } from "./model.js";
import { changed } from "./store.js";
import { COLUMNS, ROWS, said_by, Terminal } from "./terminal.js";

const NOVNC = "/static/novnc/core/rfb.js";
const MISSING = "noVNC is not on the master: apt-get install novnc, then state.apply virt.page.console";

/** noVNC's class. Without touch events it would use an image as pointer, which the page's content
 * security policy forbids; with them, it draws the pointer as an element. */
async function novnc() {
  const root = document.documentElement;
  const had = "ontouchstart" in root;
  if (!had) root.ontouchstart = null;
  try {
    return (await import(NOVNC)).default;
  } catch {
    throw new Failed(MISSING);
  } finally {
    if (!had) delete root.ontouchstart;
  }
}

function display(place, RFB, socket, over) {
  const rfb = new RFB(place, socket, { shared: true });
  rfb.scaleViewport = true;
  rfb.focusOnClick = true;
  rfb.addEventListener("connect", () => rfb.focus());
  // the element of the pointer
  for (const one of document.querySelectorAll("body > canvas")) one.setAttribute("aria-hidden", "true");
  rfb.addEventListener("disconnect", () => over("the connection was closed"));
  rfb.addEventListener("credentialsrequired", () => { over("the display requires a password"); rfb.disconnect(); });
  rfb.addEventListener("securityfailure", () => over("the display refused the connection"));
  return {
    close: () => rfb.disconnect(), focus: () => rfb.focus(),
    extra: [button("Ctrl+Alt+Del", () => { rfb.sendCtrlAltDel(); rfb.focus(); })],
  };
}

/** The size of the font with which the whole terminal fits. A character is 0.61 as wide as its size. */
function font_size(element) {
  const fitting = Math.min((element.clientWidth - 20) / (COLUMNS * 0.61), (element.clientHeight - 20) / (ROWS * 1.25));
  return Math.max(8, Math.min(28, Math.floor(fitting * 2) / 2));
}

function serial(place, name, socket, over) {
  const screen = h("pre", { class: "terminal", "aria-hidden": "true" });
  const typed = h("textarea", {
    class: "typed", autocapitalize: "none", autocomplete: "off", spellcheck: "false",
    "aria-label": `Serial console of ${name}: type here`,
  });
  const encoder = new TextEncoder();
  const say = (text) => { if (socket.readyState === WebSocket.OPEN) socket.send(encoder.encode(text)); };
  const terminal = new Terminal(screen, say);
  typed.addEventListener("keydown", (event) => {
    const said = event.shiftKey && event.key === "Escape" ? null : said_by(event);
    if (said === null) return;
    event.preventDefault();
    say(said);
  });
  typed.addEventListener("input", (event) => {
    if (event.isComposing) return;
    say(typed.value.replaceAll("\n", "\r"));
    typed.value = "";
  });
  screen.addEventListener("mouseup", () => { if (!String(getSelection())) typed.focus(); });
  socket.onmessage = (event) => terminal.write(new Uint8Array(event.data));
  socket.onclose = (event) => over(event.reason || "the connection was closed");
  const around = h("div", { class: "serial" }, screen, typed);
  fill(place, around);
  terminal.draw();
  const sized = new ResizeObserver(() => { screen.style.fontSize = `${font_size(around)}px`; });
  sized.observe(around);
  return {
    close: () => { sized.disconnect(); socket.close(); }, focus: () => typed.focus(),
    extra: [button("Copy text", () => navigator.clipboard.writeText(terminal.text()).then(() => typed.focus(), () => {}))],
  };
}

/** Show a guest's display or serial port on top of the page. kind: "display", "serial". */
export function console_view(guest, kind, force = false) {
  const title = `${kind === "display" ? "Screen" : "Serial console"} of ${guest.name}`;
  const said = h("p", { class: "line", role: "status" }, "Requesting a ticket …");
  const place = h("div", { class: "reached" });
  const extra = h("span", { class: "actions" });
  const before = document.activeElement;
  let inner = null;
  let is_open = true;
  const leave = button("Close", shut);
  const made = h("dialog", { class: "console", "aria-label": title },
    h("header", null, h("h2", null, title), said, extra, leave), place);

  function shut() {
    if (!is_open) return;
    is_open = false;
    if (inner) inner.close();
    changed.removeEventListener("left", shut);
    made.remove();
    for (const one of beside) one.inert = false;
    if (before && before.isConnected) before.focus();
  }

  function over(why, in_use = false) {
    inner = null;
    said.textContent = `${why}.`;
    said.classList.add("bad");
    fill(extra, button("Again", () => { shut(); console_view(guest, kind); }, "primary"),
      in_use ? button("Take it", () => { shut(); console_view(guest, kind, true); }, "danger") : null);
    if (is_open) leave.focus();
  }

  async function begin() {
    const RFB = kind === "display" ? await novnc() : null;
    const [mine, digest] = await secret();
    const asked = { name: guest.name, kind, digest, ...(force ? { force } : {}) };
    const ticket = verdict(await call("ticket", asked), guest.name);
    if (ticket.result === false) throw new Failed(ticket.comment);
    if (kind === "display" && ticket.type !== "vnc") {
      throw new Failed(`the display has the type ${ticket.type}, which browsers do not support: run salt-run virt.display ${guest.name}`);
    }
    if (!is_open) return;
    said.textContent = "Connecting …";
    await line(mine, (socket) => {
      if (!is_open) {
        socket.close();
        return;
      }
      inner = kind === "display" ? display(place, RFB, socket, over) : serial(place, guest.name, socket, over);
      fill(extra, inner.extra);
      said.textContent = "Press Shift+Escape to leave";
      inner.focus();
    });
  }

  made.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    leave.focus();
  }, true);
  changed.addEventListener("left", shut);
  const beside = [...document.body.children];
  for (const one of beside) one.inert = true;
  document.body.append(made);
  made.show();
  begin().catch((exc) => over(exc instanceof Failed || exc.message ? exc.message : "the connection failed", exc.in_use === true));
  return made;
}

/** An element with a screenshot of a guest. Throws Failed. */
export async function picture(guest) {
  const found = verdict(await call("screenshot", { name: guest.name }), guest.name);
  if (found.result === false) throw new Failed(found.comment);
  let bitmap;
  try {
    const bytes = Uint8Array.from(atob(found.png), (one) => one.charCodeAt(0));
    bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  } catch {
    throw new Failed("the screenshot is not a valid image");
  }
  const canvas = h("canvas", { class: "picture", role: "img", "aria-label": `Screen of ${guest.name}` });
  Object.assign(canvas, { width: bitmap.width, height: bitmap.height });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  return canvas;
}
