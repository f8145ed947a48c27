// The progress of a whole operation, computed from its steps, without access to the document.

// step: [phase, percent of the whole operation at its begin, at its end]
const PLANS = {
  init: {
    queued: ["wait", 0, 0], placed: ["place", 1, 2], check: ["place", 2, 3], clean: ["place", 3, 4],
    admit: ["place", 4, 5], image: ["image", 5, 35], fetch: ["image", 5, 35], kernel: ["image", 35, 37],
    disk: ["disk", 37, 38], copy: ["disk", 38, 70], seed: ["seed", 70, 90], start: ["start", 90, 94],
    accepted: ["start", 94, 96], kept: ["start", 96, 97], waiting: ["minion", 97, 99], answered: ["minion", 99, 99],
  },
  clone: {
    queued: ["wait", 0, 0], check: ["check", 1, 3], admit: ["check", 3, 5], disk: ["disk", 5, 6],
    copy: ["disk", 6, 75], seed: ["seed", 75, 90], start: ["start", 90, 95], accepted: ["start", 95, 97],
    waiting: ["minion", 97, 99], answered: ["minion", 99, 99],
  },
  backup_restore: {
    off: ["check", 0, 1], restore: ["check", 1, 2], check: ["check", 2, 3], admit: ["check", 3, 5],
    disk: ["disk", 5, 6], copy: ["disk", 6, 90], stop: ["disk", 90, 92], state: ["state", 92, 96], show: ["state", 96, 98],
  },
  migrate: {
    recover: ["prepare", 0, 0], wait: ["prepare", 0, 0], target: ["prepare", 0, 0], progress: ["memory and disks", 0, 100],
  },
  backup: { wait: ["wait", 0, 0], begin: ["prepare", 0, 1], progress: ["copy", 1, 99] },
};
// steps after which the operation begins again on another host
const AGAIN = new Set(["refused", "placed"]);

/** The phases of an operation in their order; [] if they are unknown. */
export function phases(operation) {
  const plan = Object.hasOwn(PLANS, operation) ? PLANS[operation] : {};
  return [...new Set(Object.values(plan).map(([phase]) => phase))].filter((phase) => phase !== "wait");
}

/** Update `phase` and `percent` of a job. step: its latest one; percent: of this step. A job that is
 * not finished is at 99 % at most. */
export function advance(job, step, percent) {
  const part = Number.isFinite(percent) ? Math.max(0, Math.min(100, percent)) / 100 : null;
  if (!Object.hasOwn(PLANS, job.operation)) {
    if (part !== null) job.percent = Math.min(99, part * 100);
    return;
  }
  if (AGAIN.has(step)) job.percent = 0;
  const plan = PLANS[job.operation];
  if (!Object.hasOwn(plan, step)) return;
  const [phase, from, to] = plan[step];
  job.phase = phase;
  job.percent = Math.min(99, Math.max(job.percent || 0, from + (to - from) * (part || 0)));
}
