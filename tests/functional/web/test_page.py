"""The page in a browser, with an API that answers from a simulated cloud."""

import os
import time
from pathlib import Path

import pytest

browser = pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.functional import page_api
from tests.functional.page_api import HOSTILE, PASSWORD, USER, failed

pytestmark = pytest.mark.skipif(
    bool(browser.missing()), reason="apt-get install chromium chromium-driver: for the page"
)
# the pictures of docs/how-to/web.md are made again by PICTURES=docs/static
PICTURES = os.environ.get("PICTURES")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def api():
    found = page_api.Api(page_api.cloud(4, 40))
    yield found
    found.stop()


@pytest.fixture
def page(api, chromium):
    """The page of a new session, and at its end no word of the browser against it."""
    chromium.looks(1280, 800)
    chromium.get(f"{api.url}/page")
    chromium.run("localStorage.clear(); sessionStorage.clear()")
    chromium.get(f"{api.url}/page")
    chromium.wrong()
    yield chromium
    # the browser itself counts an answer that is no success
    assert [one for one in chromium.wrong() if "Failed to load resource" not in one] == []


@pytest.fixture
def inside(page):
    login(page)
    return page


def login(page, password=PASSWORD):
    page.fill("#user", USER)
    page.fill("#password", password)
    page.button("Log in").click()


def guest_in(api, state, host="hyper1"):
    return next(name for name, one in api.hosts[host].items() if one["state"] == state)


def tile(page, name):
    return page.call(f'.tile[data-name="{name}"]')


def press(page, *keys):
    ActionChains(page.driver).send_keys(*keys).perform()


def test_a_wrong_password_is_said_and_nothing_is_kept(page):
    login(page, "wrong")
    page.until_text("wrong user, password or authentication backend")
    assert page.run("return sessionStorage.length") == 0


def test_log_in_see_and_log_out(page, api):
    login(page)
    page.until_text("40 guests on".rpartition(" ")[0])
    assert [one.text for one in page.all(".host h2")] == list(api.hosts)
    page.until(lambda: len(page.all(".tile.guest")) == 40, "all guests")
    # no cookie: no other site's request can be the user's
    assert page.driver.get_cookies() == []
    page.button("Log out").click()
    page.call("#password")
    assert page.run("return sessionStorage.length") == 0
    page.until(lambda: api.calls[-1][0] == "logout", "its logout")


def test_tiles_are_in_proportion_to_memory(inside, api):
    inside.call(".tile.guest")
    sizes = inside.run("""
        const area = (one) => parseFloat(one.style.width) * parseFloat(one.style.height);
        return Object.fromEntries([...document.querySelectorAll('.host:first-child .tile.guest')]
            .map((one) => [one.dataset.name, area(one)]));""")
    one_mib = 10000 / 131072  # of per cent times per cent
    for name, guest in api.hosts["hyper1"].items():
        assert sizes[name] == pytest.approx(guest["mem"] / 1024 * one_mib, rel=0.01)


def test_a_treemap_fills_its_box_and_nothing_overlaps(inside):
    found = inside.run("""
        return import('/static/layout.js').then(({squarified}) =>
            squarified([9, 7, 7, 3, 2, 1, 1, 30].map((weight) => ({weight})), 2.4));""")
    assert sum(one["w"] * one["h"] for one in found) == pytest.approx(10000)
    for one in found:
        assert one["w"] * one["h"] == pytest.approx(10000 * one["weight"] / 60)
        assert one["x"] >= 0 and one["x"] + one["w"] <= 100.001
        for other in found:
            apart = (one["x"] + one["w"] <= other["x"] + 0.001
                     or one["y"] + one["h"] <= other["y"] + 0.001)  # fmt: skip
            apart |= (other["x"] + other["w"] <= one["x"] + 0.001
                      or other["y"] + other["h"] <= one["y"] + 0.001)  # fmt: skip
            assert apart or one is other


def test_pause_and_resume_on_the_guests_page(inside, api):
    name = guest_in(api, "running")
    tile(inside, name).click()
    inside.button("Pause", "main").click()
    inside.until_text(f"{name} on hyper1: pause", "main")
    inside.button("Resume", "main").click()
    inside.until(lambda: api.hosts["hyper1"][name]["state"] == "running", "running")
    called = [one for one in api.calls if one[0] in ("pause", "resume")]
    assert called == [("pause", {"name": name}), ("resume", {"name": name})]


def test_a_guest_has_an_address_that_is_reloaded_and_left_by_back(inside, api):
    name = guest_in(api, "running")
    tile(inside, name).click()
    inside.driver.find_element("link text", "Hardware").send_keys(Keys.ENTER)
    inside.until_text("52:54:00:12:34:56", "main")
    assert inside.run("return document.activeElement.textContent") == "Hardware"
    assert inside.run("return location.hash") == f"#guest/{name}/hardware"
    inside.driver.refresh()
    inside.until_text("52:54:00:12:34:56", "main")
    assert inside.driver.title.startswith(name)
    for shown in (".guest-page .overview", ".host .tile"):
        inside.driver.back()
        inside.call(shown)
    inside.run("location.hash = '#guest/%3Cnone%3E'")
    inside.until_text("No guest <none> on any host that responds.", "main")
    inside.run("location.hash = '#guest'")
    inside.call("#views a[href='#guests'][aria-current]")


def test_what_waits_for_the_next_start_is_on_the_guests_page(inside, api):
    name = guest_in(api, "running")
    tile(inside, name).click()
    inside.until_text("UUID", "main .facts")
    inside.until_text("started, priority 7", "main .facts")
    facts = inside.call("main .facts").text
    assert "At the next start" not in facts
    assert "198.51.100.7" in facts and "Snapshots\n2" in facts and "Last backup\nnone" in facts
    assert f"usage: {HOSTILE}" in facts
    api.hosts["hyper1"][name]["pending"] = ["memory (1 GiB now, then 2 GiB)", "<b>clock</b>"]
    api.tell("salt/run/20261124/ret", {"fun": "runner.virt.update", "return": {}})
    inside.until_text("memory (1 GiB now, then 2 GiB), <b>clock</b>", "main .facts")


def test_what_fails_is_the_apis_one_line(inside, api):
    name = guest_in(api, "running")
    api.answers["pause"] = page_api.failed(name, "hyper1: libvirt does not answer within 30 s")
    tile(inside, name).click()
    inside.button("Pause", "main").click()
    inside.until_text("hyper1: libvirt does not answer within 30 s", "main .line.bad")


def test_power_off_is_asked_about_first(inside, api):
    name = guest_in(api, "running")
    tile(inside, name).click()
    inside.button("Power off", "main").click()
    inside.until_text("has not yet written", "dialog")
    inside.button("Cancel", "dialog").click()
    assert "force_off" not in [fun for fun, _ in api.calls]
    inside.button("Power off", "main").click()
    inside.button("Power off", "dialog").click()
    inside.until(lambda: api.hosts["hyper1"][name]["state"] == "shutdown", "off")


def test_a_question_about_a_guest_is_not_answered_on_the_page_of_another(inside, api):
    running = [n for n, one in api.hosts["hyper1"].items() if one["state"] == "running"]
    first, second = running[:2]
    inside.get(f"{api.url}/page#guest/{second}")
    inside.button("Power off", "main")
    inside.get(f"{api.url}/page#guest/{first}")
    inside.until_text(first, "main h2")
    inside.button("Power off", "main").click()
    inside.until_text(f"Power off: {first}?", "dialog")
    inside.driver.back()
    inside.until_text(second, "main h2")
    inside.until(lambda: not inside.all("dialog"), "the question is withdrawn")
    assert "force_off" not in [fun for fun, _ in api.calls]


def test_one_look_tells_what_is_wrong_and_what_happens_now(page, api):
    crashed, paused = list(api.hosts["hyper1"])[:2]
    for guests in api.hosts.values():
        for guest in guests.values():
            guest["state"] = "running"
    api.hosts["hyper1"][paused]["state"] = "paused"
    login(page)
    page.until_text("4 hosts, all respond", ".totals")
    assert "crashed" not in page.call(".totals").text
    page.until_text("live", ".live.on")
    api.hosts["hyper1"][crashed]["state"] = "crashed"
    api.maintenance["hyper2"] = "disks"
    api.tell("salt/virt/web77/init/copy", {"message": "copying"})
    api.tell("salt/virt/web78/init/failed", {"message": "no space left"})
    page.until_text("1 crashed", ".totals a.bad")
    page.until_text("1 paused", ".totals a.warn")
    page.until_text("1 in maintenance", ".totals a.warn")
    page.until_text("1 job failed", ".totals a.bad")
    page.until_text("1 job running", ".totals a")
    next(one for one in page.all(".totals a") if "crashed" in one.text).click()
    rows = page.until(lambda: page.all("tbody tr"), "the crashed guest")
    assert [one.text.split()[:2] for one in rows] == [[crashed, "crashed"]]
    assert page.axe() == []


def test_guests_of_a_host_that_does_not_respond_are_shown_as_last_seen(inside, api):
    names = sorted(api.hosts["hyper2"])
    there = api.do_query({})
    silent = {
        "error": "down",
        "last_seen": {"guests": [*names, HOSTILE], "at": "2026-11-27 20:00 UTC"},
    }
    api.answers["query"] = {**there, "hyper2": silent}
    api.answers["host_info"] = {**api.do_host_info({}), "hyper2": {"error": "down"}}
    inside.until_text("live", ".live.on")
    api.tell("salt/minion/hyper2/start", {"id": "hyper2"})
    first = inside.call(f'.lost li[data-name="{names[0]}"]')
    assert first.get_attribute("title") == (
        f"{names[0]}: last seen on hyper2, which does not respond (since 2026-11-27 20:00 UTC)"
    )
    assert len(inside.all(".lost li")) == len(names) + 1
    inside.until_text(f"{len(names) + 1} last seen on hosts that do not respond")
    inside.get(f"{api.url}/page#guests")
    row = next(one for one in inside.all("tbody tr") if one.text.startswith(f"{names[0]} "))
    assert "last seen hyper2, which does not respond" in row.text


def test_what_is_under_the_hand_stays_when_it_is_drawn_again(inside, api):
    first, second = list(api.hosts["hyper1"])[:2]
    inside.run("location.hash = 'guests'")
    inside.until_text("ops", ".guests tbody")  # all that it asks has been answered
    box = inside.call(f"input[aria-label='Select {first}']")
    inside.run("arguments[0].focus()", box)
    row = inside.run("return arguments[0].closest('tr')", box)
    name = row.find_element("css selector", "a")
    api.hosts["hyper1"][first]["state"] = "paused"
    del api.hosts["hyper1"][second]
    api.tell("salt/run/1/ret", {"fun": "runner.virt.pause", "return": {}})
    inside.until(lambda: "paused" in row.text, "its state")
    assert second not in column(inside, 2)
    assert inside.run("return document.activeElement === arguments[0]", box)
    box.click()
    inside.until_text("1 guest selected", ".picked")
    name.click()
    inside.until_text("paused on hyper1", ".guest-page .about")


def test_every_name_can_be_read_and_leads_to_its_guest(inside, api):
    inside.call(".names a")
    names = [one.text.split("\n")[0] for one in inside.all(".names a")]
    assert sorted(names) == sorted(name for guests in api.hosts.values() for name in guests)
    cut = """return [...document.querySelectorAll('.names li')]
        .filter((one) => one.scrollWidth > one.clientWidth).length"""
    for width in (1280, 390):
        inside.looks(width, 800)
        assert inside.run(cut) == 0
    for kind in ("running", "paused", "shutdown", "own", "allocated", "in-use"):
        inside.call(f".tools .legend i.{kind}")
    last = inside.all(".host:first-child .names li")[-1].get_attribute("data-name")
    inside.call(".names a").send_keys(Keys.END)
    press(inside, Keys.ENTER)
    inside.until_text(last, "main h2")


def test_usage_is_beside_the_allocation_with_its_last_hour(inside, api):
    inside.until_text("65 GiB of 128 GiB · 41 GiB used", ".host .meters")
    inside.until_text("48 of 128 · 38 % used", ".host .meters")
    shown = inside.call(".host .trends svg").get_attribute("aria-label")
    assert shown == "CPU, the last hour: 38 %"
    inside.run("location.hash = '#host/hyper1'")
    inside.until_text("network 512 KiB/s", ".trends.wide")


LEARN = """
return import("/static/usage.js").then(({learn, host_usage}) => {
    for (const at of [9e6, 7e6, 8e6, 1e6, 9e6]) learn({hosts: {made: {cpus: at}}}, at);
    return host_usage("made").map((one) => one.at);
});"""


def test_samples_are_in_their_order_for_an_hour(inside):
    assert inside.run(LEARN) == [7e6, 8e6, 9e6]


def test_who_may_not_see_the_usage_is_asked_of_it_once(page, api):
    api.refuses = {"top"}
    login(page)
    page.until(lambda: "top" in [fun for fun, _ in api.calls], "asked")
    for view in ("guests", "hosts"):
        page.run("location.hash = arguments[0]", view)
    page.call(".tile.guest")
    assert [fun for fun, _ in api.calls].count("top") == 1
    assert "used" not in page.call(".host .meters").text


def column(page, number):
    return [one.text for one in page.all(f".guests tbody tr > :nth-child({number})")]


def test_the_table_of_guests_is_sorted_filtered_and_keeps_that_in_its_address(inside, api):
    inside.run("location.hash = '#guests'")
    inside.call(".guests tbody tr")
    inside.button("memory", ".guests").click()
    sizes = [one["mem"] >> 20 for guests in api.hosts.values() for one in guests.values()]
    assert column(inside, 8) == [f"{size} GiB" for size in sorted(sizes, reverse=True)]
    inside.call("#filter-state").send_keys("paused")
    paused = {
        name
        for guests in api.hosts.values()
        for name, one in guests.items()
        if one["state"] == "paused"
    }
    inside.until(lambda: set(column(inside, 2)) == paused, "the paused ones")
    assert inside.run("return location.hash") == "#guests?sort=-memory&state=paused"
    inside.driver.refresh()
    inside.until(lambda: set(column(inside, 2)) == paused, "the paused ones")
    assert inside.call("th[aria-sort='descending']").text.startswith("memory")
    inside.call(".columns summary").click()
    inside.driver.find_element("xpath", "//label[text()='autostart']").click()
    inside.until(lambda: inside.button("autostart", ".guests"), "its column")
    inside.run("localStorage.removeItem('salt-virt-guest-columns')")


def test_several_guests_at_once(inside, api):
    inside.run("location.hash = '#guests'")
    inside.call(".guests tbody tr")
    off = [name for guests in api.hosts.values() for name, one in guests.items()
           if one["state"] == "shutdown"]  # fmt: skip
    for name in off:
        inside.call(f"input[aria-label='Select {name}']").click()
    inside.until_text(f"{len(off)} guests selected", ".picked")
    offered = [one.text for one in inside.all(".picked button")]
    assert "Start" in offered and "Pause" not in offered
    rows = [["guest", "host", "result", "comment"], [off[0], "hyper1", "failed", HOSTILE]]
    api.answers["start"] = {
        "summary": {"result": False, "summary": True, "comment": "1 failed", "table": rows},
        "retcode": 1,
    }
    inside.button("Start", ".picked").click()
    inside.until_text(HOSTILE, "dialog table")
    (given,) = [given for fun, given in api.calls if fun == "start"]
    assert sorted(given["name"].split(",")) == sorted(off)


def test_others_changes_are_seen_by_events(inside, api):
    name = guest_in(api, "running")
    inside.until_text("live", ".live.on")
    api.hosts["hyper1"][name]["state"] = "shutdown"
    api.tell("salt/run/20261124/ret", {"fun": "runner.virt.force_off", "return": {}})
    inside.call(f'.tile.shutdown[data-name="{name}"]')


def test_keyboard_alone(page, api):
    press(page, USER, Keys.TAB, PASSWORD, Keys.ENTER)
    page.call(".tile.guest")
    focused = "return document.activeElement.dataset.name || document.activeElement.textContent"
    seen = []
    while not seen or not page.run("return document.activeElement.matches('.tile')"):
        press(page, Keys.TAB)
        seen.append(page.run(focused))
        assert len(seen) < 40, seen
    first = seen[-1]
    press(page, Keys.ARROW_RIGHT)
    second = page.run(focused)
    assert second != first and second in api.hosts["hyper1"]
    press(page, Keys.PAGE_DOWN)
    assert page.run(focused) in api.hosts["hyper2"]
    press(page, Keys.PAGE_UP)
    assert page.run(focused) == second
    press(page, Keys.ENTER)
    page.until_text(second, ".guest-page h2")
    assert page.run("return location.hash") == f"#guest/{second}"
    page.driver.back()
    page.until(lambda: page.run(focused) == second, "the focus is on its tile again")


def test_the_menu_of_a_narrow_window_by_keyboard(inside):
    focused = "return document.activeElement.textContent"
    inside.looks(640, 400)
    for _ in range(2):
        inside.button("Menu").send_keys(Keys.ENTER)
        assert inside.run(focused) == "Hosts"
        press(inside, Keys.ESCAPE)
        assert inside.run(focused) == "Menu"
    press(inside, Keys.ENTER, Keys.TAB, Keys.ENTER)
    inside.until(lambda: inside.run("return document.activeElement.id") == "body", "the view")
    assert inside.run("return location.hash") == "#guests"
    assert not inside.call("#views").is_displayed()


def test_migrate_by_keyboard_with_the_reasons_first(inside, api):
    name = guest_in(api, "running")
    tile(inside, name).send_keys(Keys.ENTER)
    inside.button("Migrate…", "main").send_keys(Keys.ENTER)
    inside.until_text("over TLS", "dialog .line")
    target = inside.call("#target")
    target.send_keys(Keys.ARROW_DOWN)
    inside.until_text("its CPU has no avx2", "dialog .line.bad")
    assert not inside.button("Migrate", "dialog").is_enabled()
    target.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    inside.until_text("would be moved from hyper1 to hyper4", "dialog .line.good")
    assert "migrate" in [fun for fun, given in api.calls if given.get("test")]
    assert not [1 for fun, given in api.calls if fun == "migrate" and not given.get("test")]
    inside.until(lambda: inside.button("Migrate", "dialog").is_enabled(), "Migrate")
    inside.button("Migrate", "dialog").send_keys(Keys.ENTER)
    inside.until(lambda: name in api.hosts["hyper4"], "moved")
    inside.until_text("was moved from hyper1 to hyper4", ".said")


DRAG = """
const [tile, host] = arguments;
const data = new DataTransfer();
const tell = (kind, on) => on.dispatchEvent(
    new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: data}));
window.dragged = {over: () => tell('dragover', host),
                  drop: () => { tell('drop', host); tell('dragend', tile); }};
tell('dragstart', tile);
tell('dragover', host);
"""


def test_migrate_by_dragging_with_the_reasons_first(inside, api):
    name = guest_in(api, "running")
    tile(inside, name)
    boxes = dict(zip(api.hosts, inside.all(".host"), strict=True))
    inside.run(DRAG, tile(inside, name), boxes["hyper2"])
    inside.until_text("its CPU has no avx2", ".host.no .verdict")
    inside.run(DRAG, tile(inside, name), boxes["hyper4"])
    inside.until_text("can be moved from hyper1 to hyper4", ".host.yes .verdict")
    inside.run("window.dragged.drop()")
    inside.until_text("would be moved from hyper1 to hyper4", "dialog .line.good")
    inside.button("Migrate", "dialog").click()
    inside.until(lambda: name in api.hosts["hyper4"], "moved")


def test_a_migration_shows_its_progress(inside, api):
    inside.until_text("live", ".live.on")
    api.tell("salt/virt/migrate/web99/progress", {"name": "web99", "percent": 40})
    inside.until_text("40 %", ".strip")
    api.tell("salt/virt/web99/migrate/done", {"guest": "web99", "message": "web99 was moved"})
    inside.until(lambda: not inside.call(".strip").is_displayed(), "it is over")
    inside.run("location.hash = '#jobs'")
    inside.until_text("web1 was moved to hyper2", "main")


def test_evacuate_shows_its_plan_first(inside, api):
    inside.call(".host h2 a").click()
    inside.button("Evacuate…", "main").click()
    inside.until_text("10 would move, 0 would stay", "main")
    assert [given for fun, given in api.calls if fun == "evacuate"] == [
        {"host": "hyper1", "test": True}
    ]
    inside.fill("#reason", "new disks")
    inside.button("Evacuate hyper1", "main").click()
    wanted = ("evacuate", {"host": "hyper1", "reason": "new disks"})
    inside.until(lambda: wanted in api.calls, "it is told")


def test_snapshots(inside, api):
    name = guest_in(api, "running")
    inside.run("location.hash = arguments[0]", f"guest/{name}/snapshots")
    api.answers["snapshot"] = page_api.done(name, "taken")
    api.answers["revert"] = page_api.done(name, f"{name} is as it was")
    inside.fill("main input", "before")
    inside.button("Take snapshot", "main").click()
    inside.until_text("2026-11-24 08:00:00, external", ".tree li li")  # below monday
    inside.until(lambda: inside.call("main input").get_attribute("value") == "", "an empty field")
    assert ("snapshot", {"name": name, "snapshot": "before"}) in api.calls
    inside.button("Revert…", "main").click()
    inside.button("Revert", "dialog").click()
    inside.until_text(f"{name} is as it was", "main")
    assert ("revert", {"name": name, "snapshot": "monday"}) in api.calls


def test_hardware_is_changed_after_a_check(inside, api):
    name = guest_in(api, "running")
    api.hosts["hyper1"][name]["pending"] = [HOSTILE]
    inside.run("location.hash = arguments[0]", f"guest/{name}/hardware")
    inside.until_text(HOSTILE, ".notice")
    inside.button("Change…", "main").click()
    inside.fill("#new-cpu", "16")
    api.answers["update"] = page_api.failed(name, "hyper1 has 8 free vCPUs")
    inside.button("Change", "dialog").click()
    inside.until_text("hyper1 has 8 free vCPUs", "dialog .line.bad")
    api.answers["update"] = page_api.done(name, f"{name} has 16 vCPUs")
    inside.button("Change", "dialog").click()
    inside.until_text(f"{name} has 16 vCPUs", "main .line.good")
    inside.call("main button[aria-label='Grow vda…']").click()
    inside.fill("#disk-size", "20GiB")
    api.answers["resize"] = page_api.done(name, "vda has 20 GiB")
    inside.button("Grow", "dialog").click()
    inside.until_text("vda has 20 GiB", "main .line.good")
    asked = [one for one in api.calls if one[0] in ("update", "resize")]
    change, grow = {"name": name, "cpu": 16}, {"name": name, "disk": "vda", "size": "20GiB"}
    assert asked == [
        *[("update", {**change, "test": True})] * 2, ("update", change),
        ("resize", {**grow, "test": True}), ("resize", grow),
    ]  # fmt: skip


def test_devices_are_attached_and_detached_after_a_check(inside, api):
    name = guest_in(api, "running")
    inside.run("location.hash = arguments[0]", f"guest/{name}/hardware")
    for verb in ("attach", "detach"):
        api.answers[verb] = lambda given: page_api.done(name, f"asked for {sorted(given)}")
    for adding, fields, word, given in (
        ("Add a disk…", {"#disk-name": "logs", "#disk-size": "20GiB", "#disk-pool": "images"},
         "Add", {"disk": "logs", "size": "20GiB", "pool": "images"}),
        ("Insert an ISO image…", {"#iso": "salt://debian.iso"}, "Insert",
         {"iso": "salt://debian.iso"}),
        ("Add an interface…", {"#nic-network": "default"}, "Add",
         {"network": "default", "model": "virtio"}),
    ):  # fmt: skip
        inside.button(adding, "main").click()
        for field, text in fields.items():
            inside.fill(field, text)
        inside.button(word, "dialog").click()
        inside.until(lambda given=given: ("attach", {"name": name, **given}) in api.calls, adding)
        assert ("attach", {"name": name, **given, "test": True}) in api.calls
        inside.until_text("asked for", "main .line.good")
    inside.button("Add a disk…", "main").click()
    inside.call("#disk-kind").send_keys("an existing")
    offered = inside.until(lambda: inside.all("#disk-pool-choices option"), "the host's pools")
    assert [one.get_attribute("value") for one in offered] == ["images"]
    assert not inside.call("#disk-size").is_displayed()
    inside.fill("#disk-source", "old.qcow2")
    press(inside, Keys.ESCAPE)
    inside.call("main button[aria-label='Detach vda…']").click()
    inside.call("#detach-force").click()
    inside.button("Detach", "dialog").click()
    inside.until(lambda: ("detach", {"name": name, "disk": "vda", "force": True}) in api.calls, "")
    inside.call("main button[aria-label='Detach 52:54:00:12:34:56…']").click()
    api.answers["detach"] = failed(name, "no such interface")
    inside.button("Detach", "dialog").click()
    inside.until_text("no such interface", "dialog .line.bad")


def test_backups_are_listed_restored_and_their_files_shown(inside, api):
    name = guest_in(api, "running")
    inside.run("location.hash = arguments[0]", f"guest/{name}/backups")
    api.answers["backup_ls"] = lambda given: {name: {
        "result": True, "comment": given["path"],
        "files": [{"name": HOSTILE, "kind": "directory", "size_bytes": 0}]
        if given["path"] == "/" else [{"name": "fstab", "kind": "file", "size_bytes": 4096}],
    }}  # fmt: skip
    inside.call("main button[aria-label='Files of backup 1…']").click()
    inside.button(f"{HOSTILE}/", "dialog").click()
    inside.until_text("fstab", "dialog table")
    assert [given["path"] for fun, given in api.calls if fun == "backup_ls"] == ["/", f"/{HOSTILE}"]
    press(inside, Keys.ESCAPE)
    api.answers["backup_restore"] = lambda given: page_api.done(given["new"], "restored")
    inside.call("main button[aria-label='Restore backup 1 as…']").click()
    inside.fill("#restore-name", "again")
    inside.button("Restore", "dialog").click()
    inside.until_text("again", ".guest-page h2")
    asked = {"name": name, "backup": "1", "to": "vault", "new": "again"}
    called = [given for fun, given in api.calls if fun == "backup_restore"]
    assert called == [{**asked, "test": True}, asked]


def test_only_possible_operations_are_offered(inside, api):
    nowhere = page_api.failed("virt", "no backup target is configured")
    nowhere["virt"]["configured"] = False
    api.answers["backups"] = nowhere

    on = {"Power off", "Screen", "Serial console"}
    for state, host, wanted in (
        ("running", "hyper1", on | {"Shut down", "Pause", "Reset", "Reboot"}),
        ("paused", "hyper1", on | {"Resume"}),
        ("shutdown", "hyper4", {"Start", "Rename…", "Clone…", "Purge…"}),
    ):
        inside.run("location.hash = arguments[0]", f"guest/{guest_in(api, state, host)}")
        inside.until_text(f"{state} on", ".guest-page .about")
        all_of_them = wanted | {"Migrate…", "Autostart off"}
        inside.until(
            lambda all_of_them=all_of_them: {
                one.text for one in inside.all(".guest-page > .actions button")
            } == all_of_them, f"of one that is {state} {all_of_them}",
        )  # fmt: skip
    inside.driver.find_element("link text", "Backups").click()
    inside.until_text("set virt:backup:targets on the master", "main .empty")


def test_a_guest_gets_a_new_name_owner_and_labels(inside, api):
    name = guest_in(api, "shutdown", "hyper4")
    inside.run("location.hash = arguments[0]", f"guest/{name}/rights")
    api.answers["set_owner"] = api.answers["label"] = page_api.done(name, "recorded")
    inside.button("Labels…", "main").click()
    inside.fill("#new-labels", "db, prod")
    inside.button("Set", "dialog").click()
    inside.until_text("recorded", "main .line.good")
    assert ("label", {"name": name, "labels": ["db", "prod"]}) in api.calls

    def renamed(given):
        if not given.get("test"):
            api.hosts["hyper4"][given["new"]] = api.hosts["hyper4"].pop(name)
        return page_api.done(given["new"], f"{name} is now {given['new']}")

    api.answers["rename"] = renamed
    inside.button("Rename…", "main").click()
    inside.fill("#new-name", "db-main")
    inside.button("Rename", "dialog").click()
    inside.until_text("db-main", ".guest-page h2")
    inside.until_text("shutdown on hyper4", ".guest-page .about")


LATEST = """
return import("/static/health.js").then((health) => health.backups({
    nas: [{guest: "a", taken_at: "2026-11-20"}, {guest: "a", taken_at: "2026-11-27"},
          {guest: "b", taken_at: "2026-11-20"}],
    offsite: [{guest: "a", taken_at: "2026-11-01", problem: "half"},
              {guest: "b", taken_at: "2026-11-26", problem: "half"}],
}).rows.slice(1).map((row) => row.slice(0, 3)))
"""


def test_the_latest_backup_is_that_of_all_targets(inside):
    assert inside.run(LATEST) == [["a", "2026-11-27", "nas"], ["b", "2026-11-20", "nas"]]


ACT = """
const [name] = arguments;
return import("/static/store.js")
    .then((store) => store.act("migrate", name, {}, [name], true)).then((said) => said.comment)
"""


def test_a_job_that_is_begun_while_the_stream_breaks_off_is_not_waited_for(inside, api):
    inside.call(".tile.guest")
    inside.until_text("live", ".live")
    api.cuts = True
    assert "the stream of events was interrupted" in inside.run(ACT, guest_in(api, "running"))


def test_an_address_of_the_pages_own_making_shows_the_hosts(inside):
    inside.call(".tile.guest")
    inside.run("location.hash = '#constructor'")
    inside.until(lambda: inside.driver.title.startswith("Hosts "), "the hosts are shown")


def test_a_browser_that_blocks_storage_shows_the_page(page, api):
    blocked = """for (const name of ["localStorage", "sessionStorage"])
        Object.defineProperty(window, name, {get() { throw new DOMException("blocked"); }});"""
    add, remove = (f"Page.{verb}ScriptToEvaluateOnNewDocument" for verb in ("add", "remove"))
    made = page.driver.execute_cdp_cmd(add, {"source": blocked})
    try:
        page.get(f"{api.url}/page")
        login(page)
        page.call(".tile.guest")
        page.button("Dark").click()
    finally:
        page.driver.execute_cdp_cmd(remove, made)
        page.get(f"{api.url}/page")


def test_high_availability_that_is_disarmed_is_said_above_all_views(inside, api):
    inside.call(".tile.guest")
    inside.until_text("live", ".live")
    assert "disarmed" not in inside.call(".totals").text
    asked = api.do_ha_status({})["ha"]
    api.answers["ha_status"] = {"ha": {**asked, "configured": True, "armed": False}}
    api.tell("salt/virt/ha/request", {"verb": "ha_disarm", "about": "ha", "message": HOSTILE})
    inside.until_text("high availability is disarmed", ".totals")
    inside.run("location.hash = '#guests'")
    inside.until_text("high availability is disarmed", ".totals")
    del api.answers["ha_status"]
    api.tell("salt/virt/ha/request", {"verb": "ha_arm", "about": "ha", "message": ""})
    inside.until(lambda: "disarmed" not in inside.call(".totals").text, "it is armed again")


def test_what_is_asked_of_high_availability_breaks_nothing_else(inside, api):
    inside.call(".tile.guest")
    inside.until_text("live", ".live")
    for answer in (None, {"ha": None}, failed("ha", "the file is damaged")):
        api.answers["ha_status"] = answer
        before = len(api.calls)
        api.tell("salt/virt/ha/request", {})
        inside.until(lambda before=before: len(api.calls) >= before + 3, "asked again")
        inside.until(lambda: len(inside.all(".tile.guest")) == 40, "all are there")


def test_a_cloud_without_high_availability_is_asked_of_it_once(inside, api):
    def asked():
        return [fun for fun, _ in api.calls].count("ha_status")

    inside.call(".tile.guest")
    inside.until_text("live", ".live")
    api.answers["ha_status"] = {"ha": {"result": True, "configured": False, "comment": ""}}
    api.tell("salt/virt/ha/request", {})
    inside.until(lambda: asked() == 2, "asked anew")
    before = len(api.calls)
    api.tell("salt/run/1/ret", {"fun": "runner.virt.start", "return": {}})
    inside.until(lambda: len(api.calls) >= before + 2, "asked again")
    assert asked() == 2


def test_what_a_server_says_is_text(inside, api):
    api.hosts["hyper1"][HOSTILE] = {"cpu": 1, "mem": 1 << 23, "state": HOSTILE, "uuid": HOSTILE}
    api.hosts["hyper1"]["half \ud800"] = {"cpu": 1, "mem": 1 << 23, "state": "", "uuid": "half"}
    api.tell("salt/run/1/ret", {"fun": "runner.virt.start", "return": {}})
    api.tell(
        f"salt/virt/{HOSTILE.replace('/', '')}/init/copy", {"message": HOSTILE, "percent": "x"}
    )
    tile(inside, HOSTILE).click()
    inside.until_text(HOSTILE, "main h2")
    for tab in ("Hardware", "History", "Backups", "Rights", "Snapshots"):
        inside.driver.find_element("link text", tab).click()
    inside.until_text("monday", "main")
    assert inside.all("img") == []
    # and no code of the page could make it otherwise
    blocked = """
        try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return 'made'; }
        catch (exc) { return exc.name; }"""
    assert inside.run(blocked) == "TypeError"
    inside.wrong()  # the browser tells of that, too


def test_an_answer_of_the_wrong_kind_breaks_nothing(inside, api):
    inside.call(".tile.guest")
    for answer in ([], "x", None, {"hyper1": 7}, {"hyper1": {"vm_info": {"web1": None}}}):
        api.answers["query"] = api.answers["host_info"] = answer
        before = len(api.calls)
        api.tell("salt/run/1/ret", {"fun": "runner.virt.start", "return": {}})
        inside.until(lambda before=before: len(api.calls) >= before + 2, "asked again")
    api.answers.clear()
    api.tell("salt/run/1/ret", {"fun": "runner.virt.start", "return": {}})
    inside.until(lambda: len(inside.all(".tile.guest")) == 40, "all are back")


def test_a_session_that_ends_is_a_new_login(inside, api):
    tile(inside, guest_in(api, "running")).click()
    inside.until_text("ops", ".overview .facts")  # all that it asks has been answered
    api.valid = False
    inside.button("Pause", "main").click()
    inside.until_text("the session has ended: log in again")
    assert inside.all("dialog, .tile") == []
    assert inside.run("return sessionStorage.length") == 0


def test_a_session_that_expires_asks_for_a_new_login(page, api):
    """The stream of events, and that of the engine, outlive it. The master's clock is not the
    browser's."""
    api.now = time.time() + 7200
    api.expire = api.now + 4
    login(page)
    page.until_text("the session has ended: log in again")
    assert page.all("dialog, .tile") == []
    assert page.run("return sessionStorage.length") == 0


def test_a_limited_user_sees_what_the_api_gives(page, api):
    api.refuses = {"host_info", "certs", "ha_status", "repair", "backups", "migrate_unfinished",
                   "init", "force_off", "attach", "set_owner"}  # fmt: skip
    api.has_events = False
    api.hosts = {"hyper1": {"web1": api.hosts["hyper1"].popitem()[1]}}
    login(page)
    tiles = page.until(lambda: page.all(".tile.guest"), "web1")
    assert [one.get_attribute("data-name") for one in tiles] == ["web1"]
    page.until_text("every 30 s", ".live")
    tile(page, "web1").click()
    page.until(lambda: page.button("Back up", "main"), "its operations")
    offered = [one.text for one in page.all("button, #views a, .tabs a")]
    assert {"Health", "Hardware"} <= set(offered)
    assert not {"Deploy…", "Deploy", "High availability", "Power off", "Backups"} & set(offered)
    page.driver.find_element("link text", "Hardware").click()
    page.until(lambda: page.button("Grow…", "main"), "its hardware")
    assert "Add a disk…" not in page.call("main").text
    page.run("location.hash = '#health'")
    page.until_text(f"{USER} may not call virt.certs")


def test_what_a_user_may_not_give_is_not_offered(page, api):
    api.limits = {"attach": ["name", "disk", "size"], "detach": ["name", "iso"],
                  "init": ["name", "cpu", "mem", "image", "seed"]}  # fmt: skip
    login(page)
    page.call(".tile.guest")
    page.run("location.hash = arguments[0]", f"#guest/{guest_in(api, 'running')}/hardware")
    add = page.button("Add a disk…", "main")
    offered = page.call("main").text
    assert "Add an interface…" not in offered and "Detach…" not in offered
    add.click()
    assert [one.text for one in page.all("#disk-kind option")] == ["a new, empty disk"]
    assert not page.call("#disk-pool").is_displayed()
    page.button("Cancel", "dialog").click()
    page.run("location.hash = '#deploy'")
    page.call("#image")
    assert not page.call("#iso").is_displayed()


# 640 pixels are 1280 at 200 %
LOOKS = {"light": (1280, 800, False), "dark": (640, 400, True), "phone": (390, 844, False)}


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(page, api, look):
    page.looks(*LOOKS[look])
    assert page.axe() == []
    login(page)
    api.tell("salt/virt/migrate/web99/progress", {"name": "web99", "percent": 40})
    for view in ("hosts", "guests", "jobs", "health"):
        page.run("location.hash = arguments[0]", view)
        page.call(f"#views a[href='#{view}'][aria-current]")
        page.until(lambda: "…" not in [one.text for one in page.all(".panel .badge")], "answers")
        assert (view, page.axe()) == (view, [])
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), view
    page.run("location.hash = 'hosts'")
    name = guest_in(api, "running")
    for tab in ("", "/hardware", "/history", "/backups", "/rights", "/snapshots"):
        page.run("location.hash = arguments[0]", f"guest/{name}{tab}")
        page.until(lambda: len(page.all(".tabs a[aria-current]")) == 1, "its tab")
        assert (tab, page.axe()) == (tab, [])
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), tab
    page.until_text("monday", "main")
    assert page.axe() == []
    page.button("Migrate…", "main").click()
    page.until_text("over TLS", "dialog")
    assert page.axe() == []


def test_of_2000_guests_only_what_changed_is_drawn_again(page):
    api = page_api.Api(page_api.cloud(100, 2000))
    try:
        page.get(f"{api.url}/page")
        login(page)
        page.until(lambda: len(page.all(".host")) == 100, "100 hosts")
        assert len(page.all(".tile.guest")) == 2000
        page.until_text("live", ".live.on")
        page.run("document.querySelectorAll('.host').forEach((one) => { one.seen = true; })")
        name = guest_in(api, "running", "hyper70")
        api.hosts["hyper70"][name]["state"] = "paused"
        api.tell("salt/run/1/ret", {"fun": "runner.virt.pause", "return": {}})
        page.call(f'.tile.paused[data-name="{name}"]')
        again = page.run("""return [...document.querySelectorAll('.host')]
            .filter((one) => !one.seen).map((one) => one.querySelector('h2').textContent)""")
        assert again == ["hyper70"]
        page.fill("#find", name)
        page.until(lambda: [one.text for one in page.all(".host h2")].count("hyper70"), "found")
        assert len(page.all(".host")) < 100
    finally:
        api.stop()


# samples of an hour, as the engine sends them
HOUR = """
const [hosts] = arguments;
const modules = [import("/static/usage.js"), import("/static/store.js")];
return Promise.all(modules).then(([usage, store]) => {
    const wave = (at, number, most) => most * (0.35 + 0.2 * Math.sin(at / (7 + number))
        + 0.1 * Math.sin(at / 2.3 + number));
    for (let at = 0; at < 115; at += 1) {
        const found = structuredClone(hosts);
        Object.values(found).forEach((host, number) => {
            host.cpu_percent = wave(at, number, 100);
            host.memory_used_bytes *= 0.9 + 0.15 * at / 115;
            host.pressure.io = wave(at, number + 3, 12);
            for (const guest of Object.values(host.guests)) {
                guest.cpu_percent = wave(at, number + guest.vcpus, 100 * guest.vcpus);
                guest.memory_used_bytes *= 0.8 + 0.3 * at / 115;
                guest.disk_written_bytes_s = wave(at, 5, 9e6);
                guest.network_sent_bytes_s = wave(at, 9, 4e6);
            }
        });
        usage.learn({ hosts: found }, Date.now() - (115 - at) * 31000);
    }
    store.changed.dispatchEvent(new Event("cloud"));
});
"""


def test_pictures_of_the_manual(page, api, tmp_path):
    folder = Path(PICTURES or tmp_path)
    name = guest_in(api, "running")
    found = api.do_vm_info({"name": name})
    del found["hyper1"][name]["unknown"]
    api.answers["vm_info"] = found
    login(page)
    page.until_text("live", ".live.on")
    page.call(".trends svg")
    page.run(HOUR, api.do_top({})["top"]["hosts"])
    page.until(lambda: len(page.call(".host .curve").get_attribute("d")) > 500, "its last hour")
    page.until(lambda: len(page.all(".tile.guest")) == 40, "all guests")
    page.cluster(folder / "page-hosts.webp")
    page.looks(1280, 800, dark=True)
    tile(page, name).click()
    page.until_text("started, priority 7", "main")
    page.cluster(folder / "page-guest.webp")
    page.looks(1280, 800)
    page.button("Migrate…", "main").click()
    page.call("#target").send_keys(Keys.ARROW_DOWN)
    page.until_text("avx2", "dialog .line.bad")
    page.cluster(folder / "page-migrate.webp")
    page.run("document.querySelectorAll('dialog').forEach((one) => one.close())")
    page.button("Deploy…").click()
    page.fill("#name", "new1")
    page.fill("#image", "salt://debian.qcow2")
    page.button("Where would it go?").click()
    page.until_text("would go to", "aside")
    page.cluster(folder / "page-deploy.webp")
    page.run("document.querySelectorAll('dialog').forEach((one) => one.close())")
    page.run("location.hash = 'health'")
    page.until_text("renewed 3 days ago")
    page.cluster(folder / "page-health.webp")
    page.looks(390, 844, dark=True)
    page.run("location.hash = 'hosts'")
    page.call(".tile.guest")
    time.sleep(0.5)
    page.cluster(folder / "page-phone.webp")
    made = ("hosts", "guest", "migrate", "deploy", "health", "phone")
    sizes = {name: (folder / f"page-{name}.webp").stat().st_size for name in made}
    assert all(8_000 < size < 150_000 for size in sizes.values()), sizes
