// The backups of a guest: take, list, restore, and the files in them.

import { call } from "./api.js";
import { button, dialog, fill, h, hold, line, say, table } from "./dom.js";
import { age, bytes, number, verdict } from "./model.js";
import { checked, field, plan_dialog } from "./plan.js";
import { go } from "./router.js";
import { act } from "./store.js";

/** The tab. */
export function backups_tab(context) {
  const list = h("div");
  const tools = h("div", { class: "actions" });
  const element = h("div", null, tools, list);
  const own = () => context.guest.name;

  async function take() {
    await context.change("backup", {}, [], true, "Back up");
    show();
  }

  function restore(one) {
    const name = field("restore-name", "Name of the restored guest", { value: `${own()}-restored` });
    const instant = field("restore-instant", "Start it at once from the backup, while its disks are copied", { kind: "checkbox" });
    plan_dialog({
      title: `Restore ${own()} of ${one.taken_at}`, word: "Restore", name: own(), fields: [name, instant],
      text: "The restored guest is another guest beside this one, with addresses and an identity of its own.",
      given: () => ["backup_restore", { backup: one.backup_id, to: one.target, new: name.value, ...(instant.value ? { instant: true, seed: false } : {}) }],
      run: async (verb, kwarg) => {
        const outcome = await act(verb, kwarg.new, { name: own(), ...kwarg }, [], true);
        if (outcome.result !== false) go("guest", kwarg.new);
      },
    });
  }

  function replace(one) {
    plan_dialog({
      title: `Replace ${own()} by its backup of ${one.taken_at}`, word: "Replace", danger: true, name: own(), fields: [],
      text: "The guest must be off. Its present disks are kept until you confirm with virt.backup_confirm; virt.backup_undo brings them back.",
      given: () => ["backup_restore", { backup: one.backup_id, to: one.target, in_place: true }],
      run: (verb, kwarg) => context.change(verb, kwarg, [], true, "Restore"),
    });
  }

  const row = (one) => [
    String(one.backup_id), h("span", { title: one.age_s ? `${age(number(one.age_s))} ago` : null }, String(one.taken_at)), one.target,
    String(one.consistency || ""), one.stored_bytes === undefined ? "" : bytes(one.stored_bytes),
    one.problem ? h("span", { class: "bad" }, String(one.problem)) : h("span", { class: "actions" },
      button("Files…", () => files(own(), one), "", { "aria-label": `Files of backup ${one.backup_id}…`, "data-name": `files ${one.backup_id}` }),
      button("Restore as…", () => restore(one), "", { "aria-label": `Restore backup ${one.backup_id} as…`, "data-name": `restore ${one.backup_id}` }),
      button("Replace…", () => replace(one), "danger", { "aria-label": `Replace by backup ${one.backup_id}…`, "data-name": `replace ${one.backup_id}` })),
  ];

  async function show() {
    if (!list.childElementCount) fill(list, h("p", { class: "none" }, "…"));
    let data;
    try {
      data = await call("backups", { name: own() });
    } catch (exc) {
      data = { backups: { result: false, comment: exc.message } };
    }
    const refused = Object.values(data).find((one) => one && one.result === false);
    const all = Object.entries(data).filter(([, one]) => Array.isArray(one))
      .flatMap(([target, some]) => some.map((one) => ({ ...one, target }))).filter((one) => one.guest === own())
      .sort((a, b) => String(b.taken_at).localeCompare(String(a.taken_at)));
    hold(tools, () => fill(tools, refused ? null : button("Back up now", take, "primary", { "data-name": "take" })));
    hold(list, () => fill(list,
      refused ? h("p", { class: "empty" }, refused.configured === false
        ? "No backup target is configured: set virt:backup:targets on the master, see docs/how-to/backups.md." : String(refused.comment)) : null,
      Object.entries(data.unreachable || {}).map(([target, why]) => h("p", { class: "line bad" }, `${target}: ${why}`)),
      all.length ? table([["number", "taken", "target", "consistency", "stored", ""], ...all.map(row)], `Backups of ${own()}`)
        : refused ? null : h("p", { class: "empty" }, "No backups. Back up now, or regularly: salt-run virt.backup_due.")));
  }

  return { element, draw() {}, show };
}

/** A dialog with the files in a backup. */
function files(name, one) {
  const said = line();
  const list = h("div");
  const where = h("input", { "aria-label": "Folder", value: "/" });
  const made = dialog(`Files of ${name}, ${one.taken_at}`, "wide",
    h("form", { class: "actions", onsubmit: (event) => { event.preventDefault(); look(where.value.trim() || "/"); } },
      where, h("button", { type: "submit" }, "Open")), said, list);

  const below = (folder, file) => `${folder.replace(/\/+$/, "")}/${file}`;

  async function fetch_file(path) {
    const plan = await checked("backup_get", name, { name, path, backup: one.backup_id, to: one.target });
    if (plan.result === false) { say(said, plan); return; }
    say(said, { comment: `Copying ${path} …` });
    say(said, await act("backup_get", name, { name, path, backup: one.backup_id, to: one.target }, [], true));
  }

  async function look(folder) {
    where.value = folder;
    say(said, { comment: "Reading the backup …" });
    fill(list);
    const found = await call("backup_ls", { name, path: folder, backup: one.backup_id, to: one.target })
      .then((data) => verdict(data, name)).catch((exc) => ({ result: false, comment: exc.message }));
    if (!made.isConnected || where.value !== folder) return;
    say(said, { comment: found.comment, ...(found.result === false ? { result: false } : {}) });
    const rows = (Array.isArray(found.files) ? found.files : []).map((file) => {
      const path = below(folder, String(file.name));
      const is_folder = String(file.kind).startsWith("d");
      return [is_folder ? button(`${file.name}/`, () => look(path), "plain") : String(file.name),
        is_folder ? "" : bytes(file.size_bytes), button("Copy", () => fetch_file(path), "", { "aria-label": `Copy ${file.name} to the backup target's machine` })];
    });
    fill(list, folder === "/" ? null : button("Parent folder", () => look(folder.replace(/\/+[^/]*\/*$/, "") || "/"), "quiet"),
      rows.length ? table([["name", "size", ""], ...rows], "Files") : null);
  }

  look("/");
}
