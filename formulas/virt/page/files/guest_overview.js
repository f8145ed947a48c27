// The overview of a guest.

import { picture } from "./console.js";
import { button, facts, fill, h, say } from "./dom.js";
import { display } from "./guest.js";
import { is_on, size } from "./model.js";

/** The tab. */
export function overview_tab(context) {
  const about = h("div");
  const screen = h("div", { class: "screen" });
  const shot = h("div", { class: "actions" }, button("Picture", shoot));
  const element = h("div", { class: "overview" }, about, shot, screen);

  async function shoot() {
    say(context.said, { comment: "Taking a screenshot …" });
    try {
      fill(screen, await picture(context.guest));
      say(context.said, { comment: "" });
    } catch (exc) {
      say(context.said, { result: false, comment: exc.message });
    }
  }

  function draw(guest) {
    fill(about, facts([
      ["vCPUs", guest.vcpus], ["Memory", size(guest.memory)],
      ["Memory now", guest.memory_now < guest.memory ? size(guest.memory_now) : null],
      ["UUID", guest.uuid], ["Display", display(guest.graphics)],
      ["At the next start", guest.pending.join(", ")],
    ]));
    shot.hidden = !is_on(guest.state) || !display(guest.graphics);
  }

  return { element, draw };
}
