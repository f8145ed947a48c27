// The login form.

import { login } from "./api.js";
import { fill, h, save, saved } from "./dom.js";

/** Show the form. why: text that explains it, or "". on_login: called after the login. */
export function login_view(why, on_login) {
  const input = (id, label, more) => [h("label", { for: id }, label), h("input", { id, required: true, ...more })];
  const said = h("p", { class: "line bad", role: "alert" }, why || "");
  const user = input("user", "User", { autocomplete: "username", autocapitalize: "none" });
  const password = input("password", "Password", { type: "password", autocomplete: "current-password" });
  const eauth = input("eauth", "Authentication", { value: saved("salt-virt-eauth") || "pam", autocapitalize: "none" });
  const go = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", { class: "login" }, h("h1", null, "Salt Virt"), user, password, eauth, go, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.textContent = "";
    try {
      await login(user[1].value, password[1].value, eauth[1].value);
      save("salt-virt-eauth", eauth[1].value);
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
