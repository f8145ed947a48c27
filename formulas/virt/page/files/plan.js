// Dialogs with a form, whose operation is checked with test=True before it runs.

import { call } from "./api.js";
import { button, dialog, fill, h, line, say, table } from "./dom.js";
import { verdict } from "./model.js";

/** A field of the form. kind: of the input, or a list of [value, label]. choices: a promise of such a
 * list, which the input offers. */
export function field(id, label, { kind = "text", help = "", choices = null, ...more } = {}) {
  const input = Array.isArray(kind)
    ? h("select", { id }, kind.map(([value, text]) => h("option", { value }, text)))
    : h("input", { id, type: kind, autocomplete: "off", ...more });
  if (Array.isArray(kind) && more.value !== undefined) input.value = more.value;
  const row = kind === "checkbox" ? h("label", { class: "tick", for: id }, input, label)
    : h("div", { class: "field" }, h("label", { for: id }, label), input);
  if (help) {
    row.append(h("small", { id: `${id}-help` }, help));
    input.setAttribute("aria-describedby", `${id}-help`);
  }
  if (choices) {
    const list = h("datalist", { id: `${id}-choices` });
    input.setAttribute("list", list.id);
    row.append(list);
    choices.then((all) => fill(list, all.map(([value, text]) => h("option", { value }, text))));
  }
  return { input, row, get value() { return kind === "checkbox" ? input.checked : input.value.trim(); } };
}

/** Check an operation about a guest, a host or a volume: a promise of its `result` and `comment`. */
export function checked(verb, about, kwarg, arg = []) {
  return call(verb, { ...kwarg, test: true }, arg).then((data) => verdict(data, about))
    .catch((exc) => ({ result: false, comment: exc.message }));
}

/** Open the dialog. fields: see `field`. given: returns [verb, kwarg] of the fields' values. run: called
 * with them if the check permits it. */
export function plan_dialog({ title, text = "", fields, word, danger = false, name, given, run }) {
  const said = line();
  const more = h("div");
  const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, word);
  const form = h("form", { class: "form", novalidate: true }, fields.map((one) => one.row), said, more,
    h("footer", null, button("Cancel", () => made.close()), button("Check", check), go));
  const made = dialog(title, "", text ? h("p", null, text) : null, form);

  async function check() {
    say(said, { comment: "Checking …" });
    fill(more);
    go.disabled = true;
    const [verb, kwarg] = given();
    const plan = await checked(verb, name, { name, ...kwarg });
    go.disabled = false;
    say(said, plan);
    if (Array.isArray(plan.table)) fill(more, table(plan.table.map((row) => row.map((one) => String(one ?? ""))), "Result of the check"));
    return plan;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const plan = await check();
    if (plan.result === false || !made.isConnected) return;
    made.close();
    run(...given());
  });
  if (fields[0]) fields[0].input.focus();
  return made;
}
