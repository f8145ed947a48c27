// Running and completed jobs: the running ones from events, the completed ones from the master's log.

import { call, LoggedOut } from "./api.js";
import { button, fill, h, table, update } from "./dom.js";
import { clock, counted, fits, refused, stamp } from "./model.js";
import { phases } from "./progress.js";
import { href } from "./router.js";
import { state } from "./store.js";

const LAST = 200;
const FRESH_MS = 30000;
const SOON_MS = 1500;

/** The view of all jobs. */
export function jobs_view(page) {
  const running = h("ol", { class: "jobs" });
  const past = h("div");
  const when = h("span", { class: "none" });
  const again = button("Refresh", () => { if (!busy) look(); }, "quiet", { "aria-label": "Refresh: finished jobs" });
  const element = h("section", { class: "sheet" },
    h("header", null, h("h3", null, "Running")), running,
    h("header", null, h("h3", null, "Finished"), when, again), past);
  let entries = null;
  let why = "";
  let at = 0;
  let finished = -1;
  let words = "";
  let timer = 0;
  let busy = false;

  async function look() {
    at = Date.now();
    busy = true;
    try {
      const found = await call("log", { limit: LAST });
      why = refused(found);
      entries = why || !found.log || !Array.isArray(found.log.entries) ? null : found.log.entries;
      when.textContent = `of all users and of salt-run, queried at ${clock(at)}`;
    } catch (exc) {
      if (exc instanceof LoggedOut) { page.ended(exc.message); return; }
      [entries, why] = [null, exc.message];
    } finally {
      busy = false;
    }
    draw_past();
  }

  function draw_past() {
    const own = [...state.jobs.values()].filter((one) => one.result !== undefined).reverse();
    if (entries) {
      fill(past, past_table(entries.filter((one) => !words || fits(words, ...Object.values(one).map(String))).reverse()));
    } else if (at && !busy) {
      fill(past, h("p", { class: "none" }, `The master's log cannot be read${why ? `: ${why}` : ""}. These are the jobs since the page was opened.`),
        own.length ? h("ol", { class: "jobs" }, own.map(job_line)) : h("p", { class: "none" }, "No jobs yet."));
    } else {
      fill(past, h("p", { class: "none" }, "Querying …"));
    }
  }

  return {
    element,
    draw(_hosts, wanted) {
      const all = [...state.jobs.values()].reverse();
      const now = all.filter((one) => one.result === undefined);
      update(running, now.length ? now.map(job_line) : h("li", { class: "none" }, "No job is running. Operations that are started here, by other users or with salt-run appear here while they run."));
      const ended = all.length - now.length;
      if (ended !== finished && finished >= 0) {
        clearTimeout(timer);
        timer = setTimeout(look, SOON_MS);
      } else if (Date.now() - at > FRESH_MS && !busy) {
        look();
      }
      if (ended !== finished || wanted !== words) {
        [finished, words] = [ended, wanted];
        draw_past();
      }
    },
    leave() { clearTimeout(timer); },
  };
}

function past_table(entries) {
  if (!entries.length) return h("p", { class: "none" }, "No job has been recorded.");
  const result = (one) => (one.result === null ? h("span", { class: "badge" }, "test")
    : h("span", { class: `badge ${one.result ? "good" : "bad"}` }, one.result ? "done" : "failed"));
  return table([["time", "operation", "guest", "host", "user", "took", "result", "comment"], ...entries.map((one) => [
    stamp(one.time), String(one.verb || ""), one.guest ? h("a", { href: href("guest", String(one.guest)) }, String(one.guest)) : "",
    String(one.host || ""), String(one.user || ""), took(one.seconds), result(one), String(one.comment || ""),
  ])], `${counted(entries.length, "finished job")}`);
}

function took(seconds) {
  const all = Number(seconds);
  if (!Number.isFinite(all)) return "";
  return all < 90 ? `${all < 10 ? all.toFixed(1) : Math.round(all)} s` : `${Math.round(all / 60)} min`;
}

/** The strip of running jobs, which is below all views. Its `draw` returns their number. */
export function strip_view() {
  const list = h("ol", { class: "jobs" });
  const element = h("aside", { class: "strip", "aria-label": "Running jobs", hidden: true }, list);
  function draw() {
    const now = [...state.jobs.values()].reverse().filter((one) => one.result === undefined);
    update(list, now.slice(0, 3).map(job_line));
    element.hidden = !now.length;
    return now.length;
  }
  return { element, draw };
}

function job_line(job) {
  const done = job.result === undefined ? "" : job.result ? "done" : "failed";
  const bar = done ? null : h("progress", {
    max: "100", value: job.percent === null ? null : String(Math.round(job.percent)),
    "aria-label": `${job.operation} ${job.about}`,
  });
  return h("li", { class: `job ${done || "now"}` },
    h("time", null, clock(job.began)), h("strong", null, `${job.operation} ${job.about}`),
    h("span", { class: `badge ${done === "done" ? "good" : done ? "bad" : ""}` }, done || (job.percent === null ? "running" : `${Math.floor(job.percent)} %`)),
    bar, done ? null : phase_list(job), h("span", { class: "text" }, job.text));
}

/** The phases of the operation, of which the current one is marked. */
function phase_list(job) {
  const all = phases(job.operation);
  if (all.length < 2 || !job.phase) return null;
  const at = all.indexOf(job.phase);
  return h("ol", { class: "phases", "aria-label": "Phases" }, all.map((name, place) => h("li", {
    class: place < at ? "past" : place === at ? "current" : "", ...(place === at ? { "aria-current": "step" } : {}),
  }, name)));
}
