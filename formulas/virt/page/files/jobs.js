// Running and completed jobs.

import { fill, h } from "./dom.js";
import { clock } from "./model.js";
import { state } from "./store.js";

/** The view of all jobs, and the strip of running jobs. */
export function jobs_view() {
  const list = h("ol", { class: "jobs" });
  const under_way = h("ol", { class: "jobs" });
  const strip = h("aside", { class: "strip", "aria-label": "Running jobs", hidden: true }, under_way);
  function draw() {
    const all = [...state.jobs.values()].reverse();
    fill(list, all.length ? all.map(job_line) : h("li", { class: "none" }, "no jobs since the page was opened"));
    const now = all.filter((one) => one.result === undefined);
    fill(under_way, now.slice(0, 3).map(job_line));
    strip.hidden = !now.length;
    return now.length;
  }
  return { element: list, strip, draw };
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
