"""The dashboard as users see it: a real Prometheus with the metrics of a cloud, and Perses in a
browser."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

browser = pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")
pytest.importorskip("libvirt")
pytest.importorskip("prometheus_client")
from selenium.webdriver.common.keys import Keys

from tests.clock import until
from tests.functional import metered
from tests.functional.metrics.test_alerts import FOLDER
from tests.lab import packages, perses, prometheus

pytestmark = [
    # the page takes minutes until it is built, once
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(browser.missing()), reason="apt-get install chromium chromium-driver: for the page"
    ),
    pytest.mark.skipif(
        bool(packages.why_not()), reason="Prometheus is Debian's, and is downloaded by root"
    ),
]
DASHBOARD = FOLDER / "perses.json"
# the picture of docs/how-to/metrics.md is made again by PICTURES=docs/static
PICTURES = os.environ.get("PICTURES")
WIDE, HIGH = 1440, 2300
CPU = "CPU: vCPUs that are busy"


NUMBER = re.compile(r"-?[\d.,]+[KMB]?")


def panels():
    """The dashboard, and its panels by their titles."""
    found = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    several = found["spec"]["panels"].values()
    return found, {one["spec"]["display"]["name"]: one["spec"] for one in several}


def queries(panel):
    return [one["spec"]["plugin"]["spec"] for one in panel["queries"]]


@contextlib.contextmanager
def prometheus_of(data, assets, port):
    """One runs with that data, scrapes nothing, and serves a folder as /user."""
    settings = data / "prometheus.json"
    settings.write_text("{}", encoding="ascii")
    argv = [prometheus.program("prometheus"), f"--config.file={settings}",
            f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}",
            f"--web.user-assets={assets}"]  # fmt: skip
    with open(data / "said", "wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as one:
        try:
            yield one
        finally:
            one.terminate()


def answers(url):
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
        return answer.status == 200
    return False


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of the page, and the folder that it is in."""
    assets = tmp_path_factory.mktemp("assets") / "page"
    shutil.copytree(perses.page(), assets)
    shutil.copy(DASHBOARD, assets)
    data = metered.fill(tmp_path_factory.mktemp("prometheus"), time.time())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with prometheus_of(data, assets, port):
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/-/ready"), "Prometheus", 60)
        yield f"{url}/user/index.html?every={metered.EVERY_S}s", assets


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("browser"), WIDE, HIGH) as found:
        yield found


@pytest.fixture
def page(served, chromium):
    """The browser, and at the end nothing that it says against the page, or asked for elsewhere."""
    yield chromium
    assert chromium.wrong() == []
    asked = chromium.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    origin = served[0].partition("/user/")[0]
    assert [one for one in asked if not one.startswith((f"{origin}/", "data:"))] == []


def shown(page, served, file=DASHBOARD.name):
    """{title of a panel: what is drawn in it}, once nothing is loaded any more."""
    page.get(f"{served[0]}&file={file}")
    return settled(page)


def settled(page):
    def still():
        found = page.run("return window.drawn && window.drawn()") or []
        there = len(found) == len(panels()[1]) and not any(one["busy"] for one in found)
        return found if there else None

    def same():
        found = still()
        time.sleep(0.5)
        return found if found == still() else None

    return {one["title"]: one for one in page.until(same, "all panels, and nothing moves")}


def without(found):
    """The titles of the panels that are wrong, or lack the data of one of their queries."""
    return {title for title, panel in panels()[1].items() if not _has_data(found[title], panel)}


def _has_data(one, panel):
    if panel["plugin"]["kind"] == "StatChart":
        names, numbers = one["text"], bool(NUMBER.fullmatch(one["text"][-1]))
    else:
        names = [name for name, _ in one["lines"]]
        numbers = bool(names) and all(count for _, count in one["lines"])
    # the text at the end of a legend tells of which query a line is
    ends = [re.sub(r".*}}", "", query["seriesNameFormat"]) for query in queries(panel)]
    return not one["wrong"] and numbers and all(any(n.endswith(e) for n in names) for e in ends)


def test_each_panel_is_drawn_and_has_data(served, page):
    found = shown(page, served)
    assert without(found) == set()
    assert found["Guests by state"]["text"][1:] == ["running", "6", "shutdown", "1"]
    assert found["Hosts that answer the master"]["text"][1:] == ["answer", "3", "all", "4"]


def test_what_a_variable_chooses_is_what_is_drawn(served, page):
    shown(page, served)
    assert choices(page, "guest") == ["All", *sorted(sum(metered.GUESTS.values(), ()))]
    choose(page, "host", "hv2")
    found = settled(page)
    assert without(found) == set()
    assert found["Guests by state"]["text"][1:] == ["2"]
    assert names(found[CPU]) == {*metered.GUESTS["hv2"]}
    assert names(found["Cache of images"]) == {"hv2"}
    assert choices(page, "guest") == ["All", *sorted(metered.GUESTS["hv2"])]
    choose(page, "guest", "db1")
    assert names(settled(page)[CPU]) == {"db1"}


def names(one):
    return {name for name, _ in one["lines"]}


def field(page, variable):
    """Where a variable is chosen."""
    script = """return [...document.querySelectorAll('label')]
        .find((one) => one.textContent === arguments[0])?.control"""
    return page.until(lambda: page.run(script, variable), variable)


def opened_at(page, variable):
    """The choices, as elements."""
    field(page, variable).click()
    return page.until(lambda: page.all("[role=option]"), variable)


def choices(page, variable):
    found = [one.text for one in opened_at(page, variable)]
    field(page, variable).send_keys(Keys.ESCAPE)
    return found


def choose(page, variable, value):
    next(one for one in opened_at(page, variable) if one.text == value).click()
    field(page, variable).send_keys(Keys.ESCAPE)
    page.until(lambda: f"var-{variable}={value}" in page.driver.current_url, value)


def test_a_panel_whose_query_is_broken_is_found(served, page):
    """Each kind of panel, one of two queries, and what is no expression."""
    dashboard, several = panels()
    broken = {
        "Guests by state": "saltvirt_guest_condition",
        "Storage pools: used": "saltvirt_pool_used_bytes",
        "Memory": "saltvirt_host_memory_spare_bytes",
        CPU: "saltvirt_guest_busy_seconds_total",
    }
    for title, text in broken.items():
        queries(several[title])[-1]["query"] = text
    queries(several["Migrations"])[0]["query"] = "sum by (state"
    (served[1] / "broken.json").write_text(json.dumps(dashboard), encoding="utf-8")
    assert without(shown(page, served, "broken.json")) == {*broken, "Migrations"}
    assert "400" in page.wrong()[0]


def test_picture_of_the_manual(served, page, tmp_path):
    path = Path(PICTURES or tmp_path) / "dashboard.webp"
    page.looks(1280, HIGH)
    shown(page, served)
    # a panel that is not seen is not drawn
    page.looks(1280, 1560)
    page.cluster(path)
    page.looks(WIDE, HIGH)
    assert 30_000 < path.stat().st_size < 150_000
