// The overview of a guest: its values, its usage, its screen.

import { picture } from "./console.js";
import { button, facts, fill, h, say, update } from "./dom.js";
import { graph } from "./graph.js";
import { display } from "./guest.js";
import { age, bytes, is_on, number, rate, size } from "./model.js";
import { records } from "./records.js";
import { may } from "./rights.js";
import { guest_usage, latest, series } from "./usage.js";

const texts = (found) => (Array.isArray(found) ? found.map(String) : []);

/** The last good backup in words; "none" only if the master says so. */
function last_backup(guest, more) {
  const saved = records.backups.get(guest.name);
  if (saved) return `${saved.at}${saved.age_s === null ? "" : `, ${age(saved.age_s)} ago`}`;
  if (!more.backups) return null;
  const { last } = more.backups;
  return last ? `${age(number(last.age_s))} ago, ${last.target}` : "none";
}

/** The tab. */
export function overview_tab(context) {
  const about = h("div");
  const usage = h("div", { class: "trends wide" });
  const screen = h("div", { class: "screen" });
  const shot = h("div", { class: "actions" }, button("Picture", shoot));
  const element = h("div", { class: "overview" }, usage, about, shot, screen);

  async function shoot() {
    say(context.said, { comment: "Taking a screenshot …" });
    try {
      fill(screen, await picture(context.guest));
      say(context.said, { comment: "" });
    } catch (exc) {
      say(context.said, { result: false, comment: exc.message });
    }
  }

  function draw(guest, info) {
    const more = info || {};
    const addresses = [...new Set([...guest.addresses, ...texts(more.addresses)])];
    const labels = records.labels.get(guest.name) || texts(more.labels);
    const ha = more.ha && typeof more.ha === "object" ? `${more.ha.state}, priority ${more.ha.priority}` : null;
    const unknown = Object.entries(more.unknown || {}).map(([what, why]) => h("li", null, `${what}: ${why}`));
    update(about, facts([
      ["Addresses", addresses.length ? h("ul", null, addresses.map((one) => h("li", null, h("code", null, one)))) : null],
      ["vCPUs", guest.vcpus], ["Memory", size(guest.memory)],
      ["Memory now", guest.memory_now < guest.memory ? size(guest.memory_now) : null],
      ["Starts with its host", guest.autostart === null ? null : guest.autostart ? "yes" : "no"],
      ["Owner", records.owner.get(guest.name) || more.owner || null],
      ["Labels", labels.length ? labels.map((one) => h("span", { class: "badge" }, one)) : null],
      ["High availability", ha], ["Snapshots", Array.isArray(more.snapshots) ? more.snapshots.length : null],
      ["Last backup", last_backup(guest, more)],
      ["UUID", guest.uuid], ["Display", display(guest.graphics)],
      ["At the next start", guest.pending.join(", ")],
      ["Unknown", unknown.length ? h("ul", null, unknown) : null],
    ]));
    draw_usage(guest);
    shot.hidden = !may("screenshot") || !is_on(guest.state) || !display(guest.graphics);
  }

  function draw_usage(guest) {
    const samples = is_on(guest.state) ? guest_usage(guest.key) : [];
    const now = latest(samples);
    if (!now) { fill(usage); return; }
    const trend = (label, read, most, text) => h("figure", null, h("figcaption", null, label, " ", h("b", null, text)),
      graph(label, series(samples, read), most, text));
    const both = (...kinds) => (one) => kinds.reduce((all, kind) => all + number(one[kind]), 0);
    const [disks, networks] = [both("disk_read_bytes_s", "disk_written_bytes_s"), both("network_received_bytes_s", "network_sent_bytes_s")];
    const known = (value) => value !== null && value !== undefined;
    update(usage,
      trend("CPU", (one) => one.cpu_percent ?? NaN, 100 * number(guest.vcpus), known(now.cpu_percent) ? `${Math.round(now.cpu_percent)} % of ${100 * guest.vcpus} %` : "–"),
      known(now.memory_used_bytes) ? trend("memory", (one) => one.memory_used_bytes ?? NaN, now.memory_bytes, `${bytes(now.memory_used_bytes)} of ${bytes(now.memory_bytes)}`) : null,
      trend("disk", disks, 1024 ** 2, rate(disks(now))), trend("network", networks, 1024 ** 2, rate(networks(now))));
  }

  return { element, draw };
}
