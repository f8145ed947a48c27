// The login form. The authentication backends come from a file that the formula writes; the page
// asks nothing else before a login.

import { login } from "./api.js";
import { fill, h, save, saved } from "./dom.js";

const KEY = "salt-virt-eauth";

/** The configured backends; [] if they are unknown. */
async function methods() {
  try {
    const answer = await fetch("/static/login.json", { credentials: "omit", cache: "no-store", redirect: "error" });
    const found = answer.ok ? (await answer.json()).methods : [];
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

/** The field for the backend: a choice, nothing if there is only one, or a text if they are
 * unknown. */
function backend_field(known) {
  const last = saved(KEY);
  if (known.length) {
    const chosen = known.includes(last) ? last : known[0];
    const select = h("select", { id: "eauth" }, known.map((one) => h("option", { value: one, selected: one === chosen }, one)));
    return { input: select, parts: known.length > 1 ? [h("label", { for: "eauth" }, "Authentication"), select] : [] };
  }
  const input = h("input", { id: "eauth", required: true, value: last || "pam", autocapitalize: "none" });
  return { input, parts: [h("label", { for: "eauth" }, "Authentication"), input] };
}

/** Show the form. why: text that explains it, or "". on_login: called after the login. */
export function login_view(why, on_login) {
  const input = (id, label, more) => [h("label", { for: id }, label), h("input", { id, required: true, ...more })];
  const said = h("p", { class: "line bad", role: "alert" }, why || "");
  const user = input("user", "User", { autocomplete: "username", autocapitalize: "none" });
  const password = input("password", "Password", { type: "password", autocomplete: "current-password" });
  const place = h("div", { class: "backend" });
  let backend = backend_field([]);
  const known = methods().then((found) => {
    backend = backend_field(found);
    fill(place, backend.parts);
  });
  const go = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", { class: "login" }, h("h1", null, "Salt Virt"), user, password, place, go, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.textContent = "";
    try {
      await known;
      await login(user[1].value, password[1].value, backend.input.value);
      save(KEY, backend.input.value);
      on_login();
    } catch (exc) {
      said.textContent = exc.message;
      password[1].value = "";
      password[1].focus();
    } finally {
      go.disabled = false;
    }
  });
  fill(document.body, h("main", { class: "outside" }, form));
  user[1].focus();
}
