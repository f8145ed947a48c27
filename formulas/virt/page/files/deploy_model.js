// Names, sizes and the explained placement of new guests, without access to the document.

import { number } from "./model.js";

/** Sizes to choose from. */
export const SIZES = [
  { name: "Small", cpu: 1, mem: "1G", size: "10G" }, { name: "Medium", cpu: 2, mem: "4G", size: "20G" },
  { name: "Large", cpu: 4, mem: "8G", size: "40G" }, { name: "Huge", cpu: 8, mem: "16G", size: "80G" },
];

/** The names of guests: the given one, or for several (or if it ends in no number and is taken) the
 * next free numbers. taken: a set of names. */
export function names(given, count, taken) {
  const many = Math.max(1, Math.min(100, Math.floor(count) || 1));
  if (!given || given.includes(",")) return [given];
  if (many === 1 && given !== "guest") return [given];
  const [, stem, digits] = given.match(/^(.*?)(\d*)$/s);
  const found = [];
  for (let next = digits ? Number(digits) : 1; found.length < many; next += 1) {
    const name = stem + String(next).padStart(digits.length, "0");
    if (!taken.has(name)) found.push(name);
  }
  return found;
}

// arguments that placement does not consider
const WITHOUT = ["seed", "start", "enable_vnc", "user_data", "boot_dev", "autostart"];

/** The arguments of virt.explain for those of virt.init: of the first guest. */
export function unplaced_arguments(wanted) {
  const found = Object.fromEntries(Object.entries(wanted).filter(([key]) => !WITHOUT.includes(key)));
  return { ...found, name: wanted.name.split(",")[0] };
}

// part of the score: what a host has more of, and less of
const WORDS = {
  memory: ["most free memory", "less free memory"],
  vcpu: ["most free vCPUs", "fewer free vCPUs"],
  disk: ["most free disk space", "less free disk space"],
  image: ["the image is cached", "the image must be copied first"],
  labels: ["has the preferred labels", "lacks preferred labels"],
  spread: ["fewest guests of the same group", "more guests of the same group"],
};

/** The table of virt.explain in words, the best host first: `host`, `badge`, `why`, `rejected`. */
export function placement(rows) {
  const [head, ...body] = rows;
  if (!body.length) return [];
  const at = Object.fromEntries(head.map((one, place) => [one, place]));
  const fit = body.filter((row) => !row[at["rejected by"]]).sort((a, b) => number(b[at.score]) - number(a[at.score]));
  const out = body.filter((row) => row[at["rejected by"]]);
  const most = Object.fromEntries(Object.keys(WORDS).map((part) => [part, Math.max(...fit.map((row) => number(row[at[part]])))]));
  const least = Object.fromEntries(Object.keys(WORDS).map((part) => [part, Math.min(...fit.map((row) => number(row[at[part]])))]));
  const why = (row, is_best) => {
    const differs = Object.keys(WORDS).filter((part) => most[part] > least[part]);
    const has = differs.filter((part) => number(row[at[part]]) === most[part]).map((part) => WORDS[part][0]);
    const lacks = differs.filter((part) => number(row[at[part]]) < most[part]).map((part) => WORDS[part][1]);
    if (!differs.length) return fit.length > 1 ? "all hosts that can take it are equally good" : "the only host that can take it";
    return (is_best ? [...has, ...lacks] : [...lacks, ...has]).join("; ");
  };
  return [
    ...fit.map((row, place) => ({ host: String(row[at.host]), badge: place ? "" : "goes here", rejected: false, why: why(row, !place) })),
    ...out.map((row) => ({ host: String(row[at.host]), badge: "cannot take it", rejected: true, why: String(row[at.reason] || row[at["rejected by"]]) })),
  ];
}
