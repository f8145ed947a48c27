// Running and completed jobs.

import { fill, h } from "./dom.js";
import { clock } from "./model.js";
import { state } from "./store.js";

/** The view of all jobs. */
export function jobs_view() {
  const list = h("ol", { class: "jobs" });
  function draw() {
    const all = [...state.jobs.values()].reverse();
    fill(list, all.length ? all.map(job_line) : h("li", { class: "none" }, "no jobs since the page was opened"));
  }
  return { element: list, draw };
}

/** The strip of running jobs, which is below all views. Its `draw` returns their number. */
export function strip_view() {
  const list = h("ol", { class: "jobs" });
  const element = h("aside", { class: "strip", "aria-label": "Running jobs", hidden: true }, list);
  function draw() {
    const now = [...state.jobs.values()].reverse().filter((one) => one.result === undefined);
    fill(list, now.slice(0, 3).map(job_line));
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
    h("span", { class: `badge ${done === "done" ? "good" : done ? "bad" : ""}` }, done || (job.percent === null ? "running" : `${Math.round(job.percent)} %`)),
    bar, h("span", { class: "text" }, job.text));
}
