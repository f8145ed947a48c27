"""How fluid the page is with 100 hosts and 2,000 guests: a headless Chromium, and an API that
answers from a simulated cloud.

For each step: what the page's main thread computes (CPU time), its longest task and the number of
tasks longer than 50 ms, which delay a key or a frame (wall time: on a quiet machine only).
Arguments: the numbers of hosts and of guests.
"""

import functools
import statistics
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("", "_utils")]

from tests import browser
from tests.functional import page_api
from tests.functional.page_api import PASSWORD, USER

HOSTS, GUESTS, ROUNDS = 100, 2000, 5
WATCH = """
window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask", buffered: true });
"""
# two frames: what an event has changed is painted
FRAMES = """return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
    () => setTimeout(() => done(tasks.splice(0)), 0))));"""


class Meter:
    """Measures steps on a page."""

    def __init__(self, page):
        self.page, self.steps = page, {}
        page.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def _cpu_ms(self):
        found = self.page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(one["value"] for one in found if one["name"] == "TaskDuration")

    def step(self, name, act, until):
        """Act, and wait until what it changes is seen."""
        self.page.run(FRAMES)
        before = self._cpu_ms()
        act()
        self.page.until(until, name)
        tasks = self.page.run(FRAMES)
        used_ms = self._cpu_ms() - before
        self.steps.setdefault(name, []).append((used_ms, max(tasks, default=0), len(tasks)))

    def show(self):
        for name, values in self.steps.items():
            used, longest, count = map(statistics.median, zip(*values, strict=True))
            tasks = f"longest task {longest:4.0f} ms, {count:.0f} above 50 ms"
            print(f"  {name:34} {used:5.0f} ms CPU, {tasks}")


def first_paint(meter, api):
    page = meter.page
    page.get(f"{api.url}/page")
    page.run("sessionStorage.clear()")
    page.get(f"{api.url}/page")
    page.run(WATCH)
    page.fill("#user", USER)
    page.fill("#password", PASSWORD)
    guests = sum(map(len, api.hosts.values()))
    shown = "return document.querySelectorAll('.tile.guest').length"
    meter.step("log in, until all guests are drawn", page.button("Log in").click,
               lambda: page.run(shown) == guests)  # fmt: skip
    page.until_text("live", ".live.on")


def change(api, host, state):
    """Another state of a guest, and the event of a verb that has changed it."""
    api.hosts[host][next(iter(api.hosts[host]))]["state"] = state
    api.tell("salt/run/1/ret", {"fun": "runner.virt.pause", "return": {}})


def changes(meter, api, script):
    """script: returns the classes by which the page shows the state of a guest."""
    name = next(iter(api.hosts["hyper70"]))
    for state in ("paused", "running", "shutdown", "running"):
        meter.step(
            f"{meter.view}: a guest changes",
            functools.partial(change, api, "hyper70", state),
            lambda state=state: state in meter.page.run(script, name),
        )


def typed(meter, text, until):
    script = """const field = document.querySelector("#find"); field.value = arguments[0];
        field.dispatchEvent(new Event("input", { bubbles: true }));"""
    meter.step(f"{meter.view}: search", lambda: meter.page.run(script, text), until)


def usage(meter, api):
    """A sample of all hosts and guests, as the engine sends it each half minute."""
    script = """const [hosts, number] = arguments;
        return Promise.all([import("/static/usage.js"), import("/static/store.js")])
            .then(([usage, store]) => {
                usage.learn({ hosts }, Date.now() + number * 30000);
                store.changed.dispatchEvent(new Event("cloud"));
            });"""
    hosts = api.do_top({})["top"]["hosts"]
    for number in range(1, 6):
        act = functools.partial(meter.page.run, script, hosts, number)
        meter.step(f"{meter.view}: a sample of the usage", act, lambda: True)


def scroll(meter):
    script = """return new Promise((done) => { let at = 0; const step = () => {
        scrollBy(0, 400); at += 1; if (at < 30) requestAnimationFrame(step);
        else { scrollTo(0, 0); done(); } }; step(); });"""
    act = functools.partial(meter.page.run, script)
    meter.step(f"{meter.view}: scroll 12,000 pixels", act, lambda: True)


def hosts(meter, api):
    meter.view = "Hosts"
    page = meter.page
    count = "return document.querySelectorAll('.host').length"
    dim = "return document.querySelectorAll('.tile.dim').length"
    changes(meter, api, """return [...document.querySelectorAll(".tile.guest")]
        .find((one) => one.dataset.name === arguments[0]).className""")  # fmt: skip
    typed(meter, "hyper70", lambda: page.run(count) == 1)
    typed(meter, "", lambda: page.run(count) == len(api.hosts))
    typed(meter, "web", lambda: page.run(dim) > 0)
    typed(meter, "", lambda: page.run(dim) == 0)
    usage(meter, api)
    scroll(meter)


def guests(meter, api):
    meter.view = "Guests"
    page, rows = meter.page, "return document.querySelectorAll('tbody tr').length"
    first = "return document.querySelector('tbody th').textContent"
    go = "location.hash = arguments[0]"
    meter.step("Guests: open", lambda: page.run(go, "guests"), lambda: page.run(rows) > 50)
    for by in ("memory", "name"):
        press = f"""document.querySelector('[data-name="sort {by}"]').click()"""
        done = f"""return document.querySelector('[data-name="sort {by}"]')
            .closest("th").hasAttribute("aria-sort")"""
        act = functools.partial(page.run, press)
        meter.step("Guests: sort", act, lambda done=done: page.run(done))
    typed(meter, "mail", lambda: page.run(first).startswith("mail"))
    typed(meter, "", lambda: not page.run(first).startswith("mail"))
    usage(meter, api)
    scroll(meter)
    page.run(go, "guests?host=hyper70")
    page.until(lambda: page.run(rows) < 50, "one host")
    changes(meter, api, """return [...document.querySelectorAll("tbody tr")]
        .find((one) => one.querySelector("a").textContent === arguments[0])
        .querySelector(".state").className""")  # fmt: skip
    shown = "return document.querySelectorAll('.host').length"
    meter.step("Hosts: again", lambda: page.run(go, "hosts"), lambda: page.run(shown))


def main(arguments):
    numbers = [int(word) for word in arguments]
    of_hosts, of_guests = [*numbers, *(HOSTS, GUESTS)[len(numbers) :]]
    if browser.missing():
        print(f"not installed: {', '.join(browser.missing())}")
        return 1
    api = page_api.Api(page_api.cloud(of_hosts, of_guests))
    try:
        with tempfile.TemporaryDirectory() as folder, browser.opened(folder) as page:
            meter = Meter(page)
            for _ in range(ROUNDS):
                first_paint(meter, api)
                hosts(meter, api)
                guests(meter, api)
    finally:
        api.stop()
    print(f"{of_hosts} hosts, {of_guests} guests, median of {ROUNDS} rounds:")
    meter.show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
