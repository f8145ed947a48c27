"""The formula `libvirt.metrics` on a lab's hypervisor, and a real Prometheus there: each panel of
the dashboard that is about hosts and guests has data of real ones."""

import json
from pathlib import Path

import pytest

from tests.functional.test_alerts import expressions
from tests.lab import paths, prometheus

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GUEST, HOME, CONF = "met1", "/var/tmp", "/etc/salt/minion.d/virt_exporter.conf"
FILES = paths.REPOSITORY / "formulas/virt/monitoring"
# of the master's exporter; of what this host has not: pools, certificates, high availability,
# a backup; and of a guest that may write nothing for minutes
ELSEWHERE = {
    "Hosts that answer the master", "Storage pools: may still be promised", "Storage pools: used",
    "Certificates: time left", "High availability: hosts", "High availability: guests",
    "Age of the last good backup", "Disks: seconds for a write",
}  # fmt: skip
PROMETHEUS = {
    "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
    "rule_files": [f"{HOME}/alerts.yml"],
    "scrape_configs": [
        {"job_name": "salt-virt", "static_configs": [{"targets": ["127.0.0.1:9177"]}]}
    ],
}
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


@pytest.fixture(scope="module")
def cloud(lab):
    """The lab, with what the machine cannot fetch by itself, and a guest that boots."""
    for path in (prometheus.wheel(), prometheus.program("prometheus"), FILES / "alerts.yml"):
        lab.push("hv1", Path(path), HOME)
    lab.exec("hv1", f"rm -f {CONF}; systemctl restart salt-minion")
    lab.wait_for_minion("hv1")
    done = lab.run("virt.init", GUEST, 1, 384, "salt://debian.qcow2", seed=False, host="hv1")
    assert done.rc == 0, done
    yield lab
    lab.exec("hv1", f"systemctl stop prometheus; rm -f {CONF}; systemctl restart salt-minion")
    lab.wait_for_minion("hv1")
    lab.run("virt.force_off", GUEST)
    lab.run("virt.purge", GUEST)


def applied(lab):
    """The ids of the states that changed something."""
    metrics = {"requirement": f"{HOME}/{prometheus.wheel().name}", "every_s": 5}
    pillar = {"libvirt": {"metrics": metrics}}
    states = lab.call("hv1", "state.apply", "libvirt.metrics", pillar=pillar, timeout=200)
    assert all(one["result"] for one in states.values()), states
    return {one["__id__"] for one in states.values() if one["changes"]}


def test_the_formula_begins_the_exporter_and_again_changes_nothing(cloud):
    # the library may be there: the lab's Salt has it for the tests
    assert applied(cloud) - {"libvirt_metrics_library"} == {
        "libvirt_metrics_engine", "libvirt_metrics_minion_restarts",
    }  # fmt: skip
    listens = "ss -Hltn 'sport = :9177'"
    cloud.wait(lambda: cloud.exec("hv1", listens).stdout, "the exporter", timeout_s=180)
    assert "127.0.0.1:9177" in cloud.exec("hv1", listens).stdout
    cloud.wait_for_minion("hv1")
    assert applied(cloud) == set()


def test_prometheus_has_data_for_each_panel_of_hosts_and_guests(cloud):
    cloud.exec("hv1", f"cat > {HOME}/prometheus.json", input=json.dumps(PROMETHEUS))
    cloud.exec("hv1", f"systemd-run -q --unit prometheus {HOME}/prometheus "
               f"--config.file {HOME}/prometheus.json --storage.tsdb.path {HOME}/tsdb "
               "--web.listen-address 127.0.0.1:9090")  # fmt: skip
    panels = [(title, text) for title, text in expressions() if title not in ELSEWHERE]
    assert len(panels) > 12
    asked = json.dumps([text for _, text in panels])
    seen = {}

    def all_have_data():
        argv = ["/opt/salt/bin/python", "-c", ASK]
        done = cloud.exec("hv1", argv, check=False, input=asked)
        if done.returncode:
            return False
        counts, seen["rules"] = json.loads(done.stdout)
        seen["without"] = [title for title, text in panels if not counts[text]]
        return not seen["without"] and "unknown" not in seen["rules"].values()

    try:
        cloud.wait(all_have_data, "data in each panel", timeout_s=180, every_s=3)
    finally:
        print(seen)
    assert seen["rules"] and set(seen["rules"].values()) == {"ok"}
