// salt-api, as its rest_cherrypy has it. No cookie is kept: each request has the token itself, so
// that no other site's request is ever ours.

import { save, saved } from "./dom.js";

const KEY = "salt-virt-session";
const PATIENCE_S = 280;
const AT_ONCE = 4;

/** The session is over, or the user cannot log in. */
export class LoggedOut extends Error {}

/** One line of what did not work. */
export class Failed extends Error {}

let session = stored();
let under_way = 0;
const waiting = [];

function stored() {
  try {
    const found = JSON.parse(saved(KEY, "sessionStorage"));
    return found && found.expire * 1000 > Date.now() ? found : null;
  } catch {
    return null;
  }
}

/** Who is logged in: `user`, `eauth`, `expire`; or null. */
export function who() {
  return session;
}

async function request(path, body, more = {}) {
  const headers = { Accept: "application/json", ...(session ? { "X-Auth-Token": session.token } : {}) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const how = {
    method: body === undefined ? "GET" : "POST", headers, credentials: "omit",
    cache: "no-store", redirect: "error", ...more,
  };
  if (body !== undefined) how.body = JSON.stringify(body);
  try {
    return await fetch(path, how);
  } catch (exc) {
    if (exc.name === "AbortError") throw exc;
    throw new Failed("salt-api does not answer");
  }
}

/** Begin a session. */
export async function login(username, password, eauth) {
  session = null;
  const answer = await request("/login", { username, password, eauth });
  if (answer.status === 401) throw new LoggedOut("user, password or kind of login are not right");
  if (!answer.ok) throw new Failed(`salt-api answers ${answer.status} to the login`);
  const found = (await answer.json()).return[0];
  session = { token: found.token, user: found.user, eauth: found.eauth, expire: found.expire };
  save(KEY, JSON.stringify(session), "sessionStorage");
}

/** End the session, here and there. */
export async function logout() {
  try {
    if (session) await request("/logout", {});
  } catch {
    // it ends by itself
  } finally {
    forget();
  }
}

/** End it here. */
export function forget() {
  session = null;
  save(KEY, null, "sessionStorage");
}

/** What a function of the virt runner answers. fun: without `virt.`. kwarg, arg: its arguments.
 * Throws Failed with one line, LoggedOut. */
export async function call(fun, kwarg = {}, arg = []) {
  const low = { client: "runner", fun: `virt.${fun}`, kwarg, arg, timeout: PATIENCE_S };
  const found = await post(low, fun);
  return unwrapped(found, fun);
}

/** Begin a function of the virt runner: the id of its job. Its end is an event. */
export async function begin(fun, kwarg = {}, arg = []) {
  const found = await post({ client: "runner_async", fun: `virt.${fun}`, kwarg, arg }, fun);
  return String(found.jid);
}

/** The data of a runner's return. Throws Failed where it has none. */
export function unwrapped(found, fun) {
  if (found && typeof found === "object" && "data" in found) return found.data;
  throw new Failed(typeof found === "string" ? found.trim().split("\n").pop() : `virt.${fun} gave no answer`);
}

async function post(low, fun) {
  await turn();
  try {
    const answer = await request("/", [low]);
    if (answer.status === 401) {
      const said = await answer.text();
      if (said.includes("occurred for user")) {
        throw new Failed(`${session ? session.user : "this user"} may not call virt.${fun}`);
      }
      throw new LoggedOut("the session has ended: log in again");
    }
    if (answer.status === 504) throw new Failed(`virt.${fun} is still at work after ${PATIENCE_S} s`);
    if (!answer.ok) throw new Failed(`salt-api answers ${answer.status} to virt.${fun}`);
    return (await answer.json()).return[0];
  } finally {
    under_way -= 1;
    if (waiting.length) waiting.shift()();
  }
}

// a browser has six connections to a server, and the events take one
async function turn() {
  while (under_way >= AT_ONCE) await new Promise((go) => { waiting.push(go); });
  under_way += 1;
}

/** Each event of the master, as (tag, data), until the signal. on_open: the stream is there.
 * Throws Failed when it ends or may not be read, LoggedOut. */
export async function events(signal, on_open, on_event) {
  const answer = await request("/events", undefined, { signal });
  if (answer.status === 401) throw new LoggedOut("the session has ended: log in again");
  if (!answer.ok) throw new Failed(`salt-api answers ${answer.status} to /events`);
  on_open();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Failed("the stream of events has ended");
    const lines = (left + value).split("\n");
    left = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) one_event(line.slice(6), on_event);
    }
  }
}

function one_event(text, on_event) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return;
  }
  if (found && typeof found.tag === "string" && found.data && typeof found.data === "object") {
    on_event(found.tag, found.data);
  }
}
