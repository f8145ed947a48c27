// A line to the master's engine virt_reach, by a ticket for this one time: nobody can use it who has
// not the secret that is made here.

import { Failed } from "./api.js";

const PATH = "/reach";
const PATIENCE_MS = 30000;

const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");

/** A new secret, and what is told of it. Throws Failed. */
export async function secret() {
  if (!crypto.subtle) throw new Failed("a console needs https");
  const made = hex(crypto.getRandomValues(new Uint8Array(32)));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(made));
  return [made, hex(new Uint8Array(digest))];
}

/** A line, with a ticket's secret. heard: told of the first answer, in which it is to be attached.
 * Throws Failed. */
export function line(made, heard) {
  return new Promise((done, failed) => {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${PATH}`);
    socket.binaryType = "arraybuffer";
    const late = setTimeout(() => socket.close(), PATIENCE_MS);
    const give_up = (why) => { clearTimeout(late); failed(new Failed(why)); };
    socket.onopen = () => socket.send(made);
    socket.onclose = (event) => give_up(event.reason
      || "the master does not answer at /reach: docs/how-to/consoles.md says what it needs, the engine virt_reach among it");
    socket.onmessage = (event) => {
      let said;
      try {
        said = JSON.parse(event.data);
      } catch {
        said = { error: "what answers at /reach is not the engine virt_reach" };
      }
      if (said.error) {
        give_up(String(said.error));
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
