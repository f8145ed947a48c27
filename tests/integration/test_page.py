"""The page before a real cloud: its formula applied on the master, salt-api, two hypervisors, and
a browser that logs in, deploys, watches, migrates and logs out."""

import contextlib
import ssl
import time
import urllib.request

import pytest

browser = pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

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
    ]
}
GUESTS = ["anna-1", "ops-1"]
# how long a deployment or a migration may take on a machine that does much else
LONG_S = 240


@pytest.fixture(scope="module")
def site(lab, tmp_path_factory):
    """(the lab, the page's address, a browser)."""
    hosts = [Hypervisor(lab, name) for name in lab.hosts]
    for one in hosts:
        one.forget(*GUESTS)
    answers = lab.salt("hv*", "state.apply", "libvirt", timeout=300)
    for host, states in answers.items():
        assert all(state["result"] for state in states.values()), (host, states)
    # a boot sector that stops the CPU
    lab.exec("master", r"""
        truncate -s 32M /srv/salt/tiny.raw
        printf '\364\353\375' | dd of=/srv/salt/tiny.raw conv=notrunc status=none
        printf '\125\252' | dd of=/srv/salt/tiny.raw bs=1 seek=510 conv=notrunc status=none
    """)  # fmt: skip
    serving.set_up(lab, USERS, {"rights": RIGHTS})
    with contextlib.ExitStack() as ends:
        url = ends.enter_context(serving.reached(lab))
        lab.wait(lambda: answers_at(url), "the page is served", timeout_s=120)
        chromium = ends.enter_context(browser.opened(tmp_path_factory.mktemp("browser")))
        yield lab, url, chromium
    for one in hosts:
        one.forget(*GUESTS)
        one.close()


def answers_at(url):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}/page", timeout=60, context=context) as answer:
            return answer.status == 200
    except OSError:
        return False


def login(site, user):
    _, url, page = site
    page.get(f"{url}/page")
    page.run("localStorage.clear(); sessionStorage.clear()")
    page.get(f"{url}/page")
    page.fill("#user", user)
    page.fill("#password", USERS[user])
    page.fill("#eauth", "file")
    page.button("Log in").click()
    return page


def logout(page):
    page.button("Log out").send_keys(Keys.ENTER)
    page.one("#password")
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
    page.one("#seed").click()
    page.button("Deploy", "dialog").click()


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


def test_deploy_watch_migrate_and_log_out(site):
    lab = site[0]
    page = login(site, "ops")
    page.until(lambda: [one.text for one in page.all(".host h2")] == lab.hosts, "both hosts")
    page.until_text("live", ".live.on")
    seen_progress(page)
    deploy(page, "ops-1")
    told(page, "ops-1 is running on")
    (source,) = running(lab, "ops-1")
    page.one('.tile[data-name="ops-1"]')
    steps = " ".join(page.run("return window.strip"))
    assert "init ops-1" in steps
    (target,) = set(lab.hosts) - {source}
    page.one('.tile[data-name="ops-1"]').click()
    page.button("Migrate…", "dialog").click()
    page.one("#target").send_keys(target)
    page.until_text(f"would be moved from {source} to {target}", "dialog .line.good")
    page.until(lambda: page.button("Migrate", "dialog").is_enabled(), "Migrate")
    page.button("Migrate", "dialog").click()
    told(page, f"ops-1 was moved from {source} to {target}")
    assert running(lab, "ops-1") == [target]
    assert "migrate ops-1" in " ".join(page.run("return window.strip"))
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()  # the card is still open
    page.until(lambda: not page.all("dialog"), "the card is closed")
    page.run("location.hash = '#health'")
    page.until_text("Certificates")
    logout(page)
    assert [one for one in page.wrong() if "Failed to load resource" not in one] == []


def test_a_limited_user_sees_and_does_what_is_granted(site):
    lab = site[0]
    page = login(site, "anna")
    page.until(lambda: [one.text for one in page.all(".host h2")] == lab.hosts, "both hosts")
    assert "ops-1" not in page.text()
    deploy(page, "anna-1")
    told(page, "anna-1 is running on")
    page.one('.tile[data-name="anna-1"]')
    assert [one.get_attribute("data-name") for one in page.all(".tile.guest")] == ["anna-1"]
    assert "ops-1" not in page.run("return document.documentElement.outerHTML")
    deploy(page, "ops-2")
    page.until_text("anna may not call virt.init for a guest ops-2", "dialog .line.bad")
    assert running(lab, "ops-2") == []
    page.button("Cancel", "dialog").click()
    logout(page)
