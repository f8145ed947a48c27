"""Debian's Prometheus, promtool and libvirt exporter as programs in the cache: nothing is
installed, and services are started only in machines of a lab."""

import json
import sys

from tests.lab import cache, paths
from tests.lab.sh import LabError, run

PACKAGES = ("prometheus", "prometheus-libvirt-exporter")
ALERTS, HOME = paths.REPOSITORY / "formulas/virt/monitoring/alerts.yml", "/var/tmp"
# expressions to how many series each has now, as Prometheus answers; the rules and their health
ASK = """
import json, sys, urllib.parse, urllib.request
def get(path, **words):
    url = "http://127.0.0.1:9090/api/v1/" + path + "?" + urllib.parse.urlencode(words)
    return json.load(urllib.request.urlopen(url, timeout=60))["data"]
asked = json.load(sys.stdin)
found = {one: len(get("query", query=one)["result"]) for one in asked}
rules = [rule for group in get("rules")["groups"] for rule in group["rules"]]
print(json.dumps([found, {one["name"]: one["health"] for one in rules}]))
"""


def _fill(folder):
    def download():
        return run(["apt-get", "-q", "download", *PACKAGES], cwd=folder, check=False).returncode

    if download():
        run(["apt-get", "-q", "update"])
        if download():
            raise LabError(f"apt-get cannot download {' and '.join(PACKAGES)}")
    for deb in sorted(folder.glob("*.deb")):
        run(["dpkg-deb", "-x", deb, folder])
        deb.unlink()


def program(name):
    """The path of ``prometheus``, ``promtool`` or ``prometheus-libvirt-exporter``."""
    return cache.built(f"prometheus-{cache.key(*PACKAGES)}", _fill) / "usr/bin" / name


def wheel():
    """The path of a wheel of the client library for Python."""

    def fill(folder):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "download", "-q", "--no-deps", "-d", folder, "prometheus-client"])

    (found,) = cache.built("prometheus-client", fill).glob("*.whl")
    return found


def serve(lab, machine, targets):
    """One runs in that machine, with our rules, and scrapes these addresses; `end` ends it."""
    scraped = {"job_name": "salt-virt", "static_configs": [{"targets": targets}]}
    settings = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [f"{HOME}/{ALERTS.name}"],
        "scrape_configs": [scraped],
    }
    for path in (program("prometheus"), ALERTS):
        lab.push(machine, path, HOME)
    lab.exec(machine, f"cat > {HOME}/prometheus.json", input=json.dumps(settings))
    lab.exec(machine, f"systemd-run -q --unit prometheus {HOME}/prometheus "
             f"--config.file {HOME}/prometheus.json --storage.tsdb.path {HOME}/tsdb "
             "--web.listen-address 127.0.0.1:9090")  # fmt: skip


def end(lab, machine):
    """It runs no more, if it did."""
    lab.exec(machine, ["systemctl", "stop", "prometheus"], check=False)


def data(lab, machine, panels, timeout_s=180):
    """Waits until each of these panels has data. panels: (title, expression). LabError names those
    that have none; our rules are well by then."""
    asked, seen = json.dumps([text for _, text in panels]), {}

    def each_has():
        argv = ["/opt/salt/bin/python", "-c", ASK]
        done = lab.exec(machine, argv, check=False, input=asked)
        if done.returncode:
            return False
        counts, rules = json.loads(done.stdout)
        seen["without"] = [title for title, text in panels if not counts[text]]
        seen["not well"] = [name for name, health in rules.items() if health != "ok"]
        return not seen["without"] and rules and not seen["not well"]

    try:
        lab.wait(each_has, "data in each panel", timeout_s, every_s=3)
    finally:
        print(seen)
