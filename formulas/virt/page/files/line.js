// A connection to the master's engine virt_reach, which requires a one-time ticket with a secret that
// is generated here.

import { Failed } from "./api.js";

const PATH = "/reach";
const PATIENCE_MS = 30000;

const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");

/** A new secret and its digest, which the ticket is requested with. Throws Failed. */
export async function secret() {
  if (!crypto.subtle) throw new Failed("consoles require HTTPS");
  const made = hex(crypto.getRandomValues(new Uint8Array(32)));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(made));
  return [made, hex(new Uint8Array(digest))];
}

/** Connect with the secret of a ticket. heard: called with the socket after the first answer; it
 * must attach its listeners at once. Throws Failed, with in_use if another user has the device. */
export function line(made, heard) {
  return new Promise((done, failed) => {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${PATH}`);
    socket.binaryType = "arraybuffer";
    const late = setTimeout(() => socket.close(), PATIENCE_MS);
    const give_up = (why, in_use = false) => { clearTimeout(late); failed(Object.assign(new Failed(why), { in_use })); };
    socket.onopen = () => socket.send(made);
    socket.onclose = (event) => give_up(event.reason
      || "the master does not respond at /reach: set up the engine virt_reach, see docs/how-to/consoles.md");
    socket.onmessage = (event) => {
      let said;
      try {
        said = JSON.parse(event.data);
      } catch {
        said = { error: "the service at /reach is not the engine virt_reach" };
      }
      if (said.error) {
        give_up(String(said.error), said.in_use === true);
        socket.close();
        return;
      }
      clearTimeout(late);
      socket.onclose = null;
      socket.onmessage = null;
      heard(socket);
      done();
    };
  });
}
