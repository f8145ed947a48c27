// Client of salt-api (rest_cherrypy). It uses no cookie: each request contains the token, so that
// requests of other sites are never authenticated.

import { save, saved } from "./dom.js";

const KEY = "salt-virt-session";
const PATIENCE_S = 280;
const AT_ONCE = 4;

/** The session has ended, or the user cannot log in. */
export class LoggedOut extends Error {}

/** An error, as one line. */
export class Failed extends Error {}

let session = stored();
let under_way = 0;
const waiting = [];

function stored() {
  try {
    const found = JSON.parse(saved(KEY, "sessionStorage"));
    return found && found.ends > Date.now() ? found : null;
  } catch {
    return null;
  }
}

/** The session: `user`, `eauth`, `ends` (by the browser's clock, in ms); null if no user is logged in. */
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
    throw new Failed("salt-api does not respond");
  }
}

/** Start a session. */
export async function login(username, password, eauth) {
  session = null;
  const answer = await request("/login", { username, password, eauth });
  if (answer.status === 401) throw new LoggedOut("wrong user, password or authentication backend");
  if (!answer.ok) throw new Failed(`the login failed with HTTP status ${answer.status}`);
  const found = (await answer.json()).return[0];
  // the clocks of the browser and of the master may differ
  const ends = Date.now() + (found.expire - found.start) * 1000;
  session = { token: found.token, user: found.user, eauth: found.eauth, ends };
  save(KEY, JSON.stringify(session), "sessionStorage");
}

/** End the session in the page and in salt-api. */
export async function logout() {
  try {
    if (session) await request("/logout", {});
  } catch {
    // it expires
  } finally {
    forget();
  }
}

/** End the session in the page. */
export function forget() {
  session = null;
  save(KEY, null, "sessionStorage");
}

/** Call a function of the virt runner. fun: without `virt.`. kwarg, arg: its arguments. Throws
 * Failed, LoggedOut. */
export async function call(fun, kwarg = {}, arg = []) {
  const low = { client: "runner", fun: `virt.${fun}`, kwarg, arg, timeout: PATIENCE_S };
  const found = await post(low, fun);
  return unwrapped(found, fun);
}

/** Start a function of the virt runner, and return its job id. Its result is an event. */
export async function begin(fun, kwarg = {}, arg = []) {
  const found = await post({ client: "runner_async", fun: `virt.${fun}`, kwarg, arg }, fun);
  return String(found.jid);
}

/** The data that a runner function has returned. Throws Failed if it has failed. */
export function unwrapped(found, fun) {
  if (found && typeof found === "object" && "data" in found) return found.data;
  throw new Failed(typeof found === "string" ? found.trim().split("\n").pop() : `virt.${fun} returned no data`);
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
    if (answer.status === 504) throw new Failed(`virt.${fun} has not finished within ${PATIENCE_S} s, and continues`);
    if (!answer.ok) throw new Failed(`virt.${fun}: salt-api responds with HTTP status ${answer.status}`);
    return (await answer.json()).return[0];
  } finally {
    under_way -= 1;
    if (waiting.length) waiting.shift()();
  }
}

// a browser opens six connections to a server, one of which receives events
async function turn() {
  while (under_way >= AT_ONCE) await new Promise((go) => { waiting.push(go); });
  under_way += 1;
}

/** Receive the master's events as (tag, data), until the signal. on_open: called when the stream
 * is open. Throws Failed when it ends or is forbidden, LoggedOut. */
export async function events(signal, on_open, on_event) {
  const answer = await request("/events", undefined, { signal });
  if (answer.status === 401) throw new LoggedOut("the session has ended: log in again");
  if (!answer.ok) throw new Failed(`/events: salt-api responds with HTTP status ${answer.status}`);
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
