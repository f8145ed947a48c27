// Graphs of the last hour.

const SVG = "http://www.w3.org/2000/svg";
const HOUR_MS = 3600000;
const [WIDTH, HEIGHT] = [240, 48];

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/** The last hour of a value. samples: {at, value}, oldest first; most: the value at the top. */
export function graph(label, samples, most, text) {
  const known = samples.filter((one) => Number.isFinite(one.value));
  const made = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "graph", role: "img",
    "aria-label": `${label}, the last hour: ${known.length ? text : "unknown"}`,
  });
  for (const part of [0.25, 0.5, 0.75]) made.append(shape("path", { class: "grid", d: `M0 ${HEIGHT * part}H${WIDTH}` }));
  if (!known.length) return made;
  const end = known[known.length - 1].at;
  const top = Math.max(most, ...known.map((one) => one.value)) || 1;
  const points = known.filter((one) => end - one.at <= HOUR_MS).map((one) => [
    WIDTH * (1 - (end - one.at) / HOUR_MS), HEIGHT - 1 - (HEIGHT - 2) * Math.max(0, one.value / top),
  ].map((value) => Math.round(value * 10) / 10).join(" "));
  const first = points[0].split(" ")[0];
  made.append(shape("path", { class: "area", d: `M${first} ${HEIGHT}L${points.join("L")}V${HEIGHT}Z` }),
    shape("path", { class: "curve", d: `M${points.join("L")}${points.length === 1 ? "h0.1" : ""}` }));
  return made;
}
