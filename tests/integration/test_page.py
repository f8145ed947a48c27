"""The page with a real cloud: its formulas applied on the master, salt-api, the engine, nginx, two
hypervisors, and a browser that logs in, deploys, watches, migrates, opens a console and logs
out."""

import contextlib
import json
import ssl
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

browser = pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")

from selenium.webdriver.common.keys import Keys

from tests.integration import manual
from tests.integration.hypervisor import Hypervisor
from tests.lab import page as serving

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(browser.missing()), reason="apt-get install chromium chromium-driver: for the page"
    ),
]
USERS = {"ops": "a word of ops", "anna": "a word of anna"}
RIGHTS = {
    "grants": [
        {"who": "ops", "verbs": ["*"], "everything": True},
        {"who": "anna", "verbs": ["manage"], "guests": ["anna-*"], "images": ["salt://tiny.raw"]},
    ],
    "quotas": {"anna": {"guests": 2}},
}
GUESTS = ["anna-1", "anna-2", "anna-3", "ops-1"]
# how long a deployment or a migration may take on a machine that does much else
LONG_S = 900


@pytest.fixture(scope="module")
def site(lab, tmp_path_factory):
    """(the lab, the page's address, a browser)."""
    hosts = [Hypervisor(lab, name) for name in lab.hosts]
    for one in hosts:
        one.forget(*GUESTS)
    answers = lab.salt("hv*", "state.apply", "libvirt", timeout=300)
    for host, states in answers.items():
        assert all(state["result"] for state in states.values()), (host, states)
    # a boot sector that says Z on the serial port at each tick of the clock
    lab.exec("master", r"""
        cd /srv/salt && truncate -s 32M tiny.raw
        printf '\272\370\003\260\132\356\373\364\353\373' | dd of=tiny.raw conv=notrunc status=none
        printf '\125\252' | dd of=tiny.raw bs=1 seek=510 conv=notrunc status=none
    """)  # fmt: skip
    serving.set_up(lab, USERS, {"rights": RIGHTS}, console=True)
    lab.wait_for_minion("master", *lab.hosts)
    with contextlib.ExitStack() as ends:
        url = ends.enter_context(serving.reached(lab))
        lab.wait(lambda: serving.answers(url), "the page is served", timeout_s=120)
        chromium = ends.enter_context(browser.opened(tmp_path_factory.mktemp("browser")))
        yield lab, url, chromium
    for one in hosts:
        one.forget(*GUESTS)
        one.close()


def called(url, user, fun, **kwarg):
    """What salt-api answers to a user."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def post(path, body, **headers):
        headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        asked = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=LONG_S, context=context) as answer:
            return json.load(answer)["return"][0]

    who = {"username": user, "password": USERS[user], "eauth": "file"}
    token = post("/login", who)["token"]
    low = [{"client": "runner", "fun": f"virt.{fun}", "kwarg": kwarg, "arg": []}]
    return post("/", low, **{"X-Auth-Token": token})["data"]


def login(site, user):
    _, url, page = site
    page.get(f"{url}/page")
    page.run("localStorage.clear(); sessionStorage.clear()")
    page.get(f"{url}/page")
    page.fill("#user", user)
    page.fill("#password", USERS[user])
    page.button("Log in").click()
    return page


def logout(page):
    page.button("Log out").send_keys(Keys.ENTER)
    page.call("#password")
    assert page.run("return sessionStorage.length") == 0


def told(page, words):
    """Waits as long as a verb may take until the page says so."""
    end = time.monotonic() + LONG_S
    while words not in " ".join(one.text for one in page.all(".said")):
        if time.monotonic() > end:
            raise AssertionError(f"{words!r} is not said: {page.text()!r}")
        time.sleep(0.2)


def deploy(page, name):
    page.button("Deploy…").click()
    for field, text in {"name": name, "mem": "64", "image": "salt://tiny.raw"}.items():
        page.fill(f"#{field}", text)
    page.call("#seed option[value='none']").click()
    page.button("Deploy", "form").click()


def running(lab, name):
    """The hosts on which libvirt has it running."""
    return [
        host for host in lab.hosts
        if name in lab.exec(host, "virsh list --name --state-running").stdout.split()
    ]  # fmt: skip


def seen_progress(page):
    """Collects what the strip of jobs says, each time that it changes."""
    page.run("""
        window.strip = [];
        new MutationObserver(() => {
            const text = document.querySelector('.strip').innerText;
            if (text && window.strip.at(-1) !== text) window.strip.push(text);
        }).observe(document.querySelector('.strip'),
                   {subtree: true, childList: true, characterData: true});
    """)


def test_the_formula_again_changes_nothing(site):
    states = serving.apply(site[0], "virt.page.console")
    assert {name for name, one in states.items() if one["changes"]} == set()
    assert {"virt_console_novnc", "virt_console_engine", "virt_console_front"} <= states.keys()


def test_the_state_of_the_manual(site):
    manual.Page(site[0], "web.md", {"MASTERS-MINION": "master"}, only=["Set up"]).follow()


def test_deploy_watch_migrate_and_log_out(site):
    lab = site[0]
    page = login(site, "ops")
    page.until(lambda: [one.text for one in page.all(".host h2")] == lab.hosts, "both hosts")
    page.until_text("live", ".live.on")
    lines = "ss -Htn state established '( sport = :8003 )'"
    assert lab.exec("master", lines).stdout  # it is the engine that tells of it
    seen_progress(page)
    deploy(page, "ops-1")
    told(page, "ops-1 is running on")
    page.run("location.hash = 'hosts'")
    (source,) = running(lab, "ops-1")
    page.call('.tile[data-name="ops-1"]')
    steps = " ".join(page.run("return window.strip"))
    assert "init ops-1" in steps
    (target,) = set(lab.hosts) - {source}
    page.call('.tile[data-name="ops-1"]').click()
    page.button("Migrate…", "main").click()
    page.call("#target").send_keys(target)
    page.until_text(f"would be moved from {source} to {target}", "dialog .line.good")
    page.until(lambda: page.button("Migrate", "dialog").is_enabled(), "Migrate")
    page.button("Migrate", "dialog").click()
    told(page, f"ops-1 was moved from {source} to {target}")
    assert running(lab, "ops-1") == [target]
    assert "migrate ops-1" in " ".join(page.run("return window.strip"))
    page.until(lambda: not page.all("dialog"), "the dialog is closed")
    page.run("location.hash = '#health'")
    page.until_text("Certificates")
    logout(page)
    assert [one for one in page.wrong() if "Failed to load resource" not in one] == []


def test_a_console_is_opened_and_shows_what_the_guest_says(site):
    page = login(site, "ops")
    page.call('.tile.running[data-name="ops-1"]').click()
    page.button("Serial console", "main").click()
    page.until_text("ZZZZ", "dialog.console .terminal")
    page.until_text("Press Shift+Escape to leave", "dialog.console")
    page.button("Close", "dialog.console").click()
    logout(page)


def test_a_limited_user_sees_and_does_what_is_granted(site):
    lab = site[0]
    page = login(site, "anna")
    page.until(lambda: [one.text for one in page.all(".host h2")] == lab.hosts, "both hosts")
    assert "ops-1" not in page.text()
    deploy(page, "anna-1")
    told(page, "anna-1 is running on")
    page.run("location.hash = 'hosts'")
    page.call('.tile[data-name="anna-1"]')
    assert [one.get_attribute("data-name") for one in page.all(".tile.guest")] == ["anna-1"]
    assert "ops-1" not in page.run("return document.documentElement.outerHTML")
    deploy(page, "ops-2")
    page.until_text("anna may not call virt.init for a guest ops-2", "aside .line.bad")
    assert running(lab, "ops-2") == []
    logout(page)


def test_of_two_requests_in_one_moment_one_gets_the_last_place_of_a_quota(site):
    """Each is a process of the master's own, on its way to the hypervisors."""
    lab, url, _ = site
    made = {"cpu": 1, "mem": 64, "image": "salt://tiny.raw", "seed": False}
    if not running(lab, "anna-1"):
        assert called(url, "anna", "init", name="anna-1", **made)["anna-1"]["result"] is True
    with ThreadPoolExecutor() as pool:
        both = [
            pool.submit(called, url, "anna", "init", name=name, **made)
            for name in ("anna-2", "anna-3")
        ]
        told = {name: one for found in both for name, one in found.result().items()}
    told.pop("retcode")
    refused = [one["comment"] for one in told.values() if not one["result"]]
    assert refused == [
        "the quota of anna would be exceeded: guests: 2 of 2 used, 1 more requested"
    ], told
    assert sum(bool(running(lab, name)) for name in told) == 1
