// Updates from the master's engine virt_reach, which queries the hypervisors once for all pages and
// sends each page the changes that its user may see.

import { call, Failed } from "./api.js";
import { line, secret } from "./line.js";
import { verdict } from "./model.js";

const PATIENCE_MS = 20000;

/** Receive updates until the signal or the end of the connection. on_open: called with a function
 * that requests a refresh and returns a promise of its completion. on_cloud: called with (query,
 * info, time, whether high availability is disarmed, new samples of the usage); query is a text if it is
 * an error. on_event: called with (tag, data). Throws Failed at the end, LoggedOut. */
export async function watch(signal, on_open, on_cloud, on_event) {
  const [mine, digest] = await secret();
  const ticket = verdict(await call("watch", { digest }), "page");
  if (ticket.result !== true) throw new Failed(ticket.comment);
  if (signal.aborted) return;
  await new Promise((_done, failed) => {
    line(mine, (socket) => {
      const asked = [];
      const known = { query: {}, info: {} };
      signal.addEventListener("abort", () => socket.close());
      if (signal.aborted) socket.close();
      socket.onclose = () => {
        for (const done of asked) done();
        failed(new Failed("the master's engine virt_reach has closed the connection"));
      };
      let answered = 0;
      socket.onmessage = (event) => {
        const said = parsed(event.data);
        if (Array.isArray(said.event)) {
          on_event(String(said.event[0]), said.event[1] || {});
          return;
        }
        learn(known, said);
        on_cloud(said.error ? String(said.error) : known.query, known.info, Number(said.at) * 1000, said.disarmed === true,
          Array.isArray(said.usage) ? said.usage : []);
        for (; answered < Number(said.answered) && asked.length; answered += 1) asked.shift()();
      };
      on_open(() => new Promise((done) => {
        if (socket.readyState !== WebSocket.OPEN) done();
        asked.push(done);
        setTimeout(done, PATIENCE_MS);
        socket.send("look");
      }));
    }).catch(failed);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text) || {};
  } catch {
    return {};
  }
}

function learn(known, said) {
  for (const [host, one] of Object.entries(said.hosts || {})) {
    known.query[host] = one.query;
    if (one.info) known.info[host] = one.info;
    else delete known.info[host];
  }
  for (const host of said.gone || []) {
    delete known.query[host];
    delete known.info[host];
  }
}
