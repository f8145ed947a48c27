"""The formula `libvirt.metrics` in a lab, and a real Prometheus there: each panel of the dashboard
has data of real guests, hosts and a backup."""

import json

import pytest

from tests.lab import prometheus

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GUEST, VAULT = "met1", "/srv/vault"
CONF, HOME = "/etc/salt/master.d/zz-metrics.conf", "/var/tmp"
# of no high availability: its series are where it is configured alone
UNCONFIGURED = {"High availability: hosts", "High availability: guests"}
PROMETHEUS = {
    "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
    "rule_files": [f"{HOME}/alerts.yml"],
    "scrape_configs": [
        {"job_name": "salt-virt",
         "static_configs": [{"targets": ["hv1:9177", "hv2:9177", "127.0.0.1:9178"]}]}
    ],
}  # fmt: skip
# expressions to how many series each has now, as Prometheus answers
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
    """The lab with exporters by the formula, and a guest that boots and has a backup."""
    wheel = prometheus.wheel()
    for name in ("master", *lab.hosts):
        lab.push(name, wheel, HOME)
    lab.run("virt.purge", GUEST)
    for states in lab.salt("hv*", "state.apply", "libvirt", timeout=300).values():
        assert all(one["result"] for one in states.values()), states
    virt = {"hosts": "hv*", "backup": {"targets": {"vault": {"host": "hv2", "folder": VAULT}}}}
    conf = {"virt": virt, "engines": [{"virt_exporter": {"every_s": 5}}]}
    lab.exec("master", f"cat > {CONF}", input=json.dumps(conf))
    lab.exec("master", f"/opt/salt/bin/python -m pip install -q --no-index {HOME}/{wheel.name}")
    lab.restart_master()
    lab.exec("hv1", """
        mkdir -p /srv/metrics-pool
        virsh -q pool-define-as metrics dir --target /srv/metrics-pool
        virsh -q pool-start metrics
    """)  # fmt: skip
    yield lab
    lab.exec("master", "systemctl stop prometheus", check=False)
    lab.run("virt.purge", GUEST)
    lab.exec("hv1", "virsh -q pool-destroy metrics; virsh -q pool-undefine metrics", check=False)
    lab.exec("master", f"rm -f {CONF}")
    for host in lab.hosts:
        lab.exec(host, "rm -f /etc/salt/minion.d/virt_exporter.conf; systemctl restart salt-minion")
    lab.restart_master()
    lab.wait_for_minion(*lab.hosts)


def applied(lab):
    """What changed, by the id of its state, on each host."""
    metrics = {"requirement": f"{HOME}/{prometheus.wheel().name}", "address": "0.0.0.0",
               "every_s": 5}  # fmt: skip
    answers = lab.salt(
        "hv*", "state.apply", "libvirt.metrics", pillar={"libvirt": {"metrics": metrics}},
        timeout=300,
    )  # fmt: skip
    assert sorted(answers) == lab.hosts, answers
    for states in answers.values():
        assert all(one["result"] for one in states.values()), states
    return {
        host: {one["__id__"] for one in states.values() if one["changes"]}
        for host, states in answers.items()
    }


def test_the_formula_begins_the_exporter_and_again_changes_nothing(cloud):
    new = {"libvirt_metrics_library", "libvirt_metrics_engine", "libvirt_metrics_minion_restarts"}
    assert applied(cloud) == dict.fromkeys(cloud.hosts, new)
    for host in cloud.hosts:
        cloud.wait(
            lambda host=host: "9177" in cloud.exec(host, "ss -Hltn 'sport = :9177'").stdout,
            f"the exporter of {host}", timeout_s=180,
        )  # fmt: skip
    cloud.wait_for_minion(*cloud.hosts)
    assert applied(cloud) == {host: set() for host in cloud.hosts}


def expressions(lab):
    """(Title of the panel, its expression), the variables as those of all."""
    served = lab.exec(
        "master",
        "salt-run salt.cmd cp.get_file_str "
        "salt://virt/monitoring/dashboard.json --out=newline_values_only",
    ).stdout
    for panel in json.loads(served)["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], text.replace("$host", ".*").replace("$guest", ".*")


def test_prometheus_has_data_for_each_panel(cloud):
    done = cloud.run("virt.init", GUEST, 1, 384, "salt://debian.qcow2", seed=False, host="hv1")
    assert done.rc == 0, done
    assert cloud.run("virt.backup", GUEST).rc == 0
    cloud.push("master", prometheus.program("prometheus"), HOME)
    cloud.exec("master", f"salt-run salt.cmd cp.get_file salt://virt/monitoring/alerts.yml "
               f"{HOME}/alerts.yml && cat > {HOME}/prometheus.json",
               input=json.dumps(PROMETHEUS))  # fmt: skip
    cloud.exec("master", f"systemd-run -q --unit prometheus {HOME}/prometheus "
               f"--config.file {HOME}/prometheus.json --storage.tsdb.path {HOME}/tsdb "
               "--web.listen-address 127.0.0.1:9090")  # fmt: skip
    panels = [(title, text) for title, text in expressions(cloud) if title not in UNCONFIGURED]
    assert len(panels) > 20
    seen = {}

    def all_have_data():
        done = cloud.exec(
            "master", ["/opt/salt/bin/python", "-c", ASK], check=False,
            input=json.dumps([text for _, text in panels]),
        )  # fmt: skip
        if done.returncode:
            return False
        counts, seen["rules"] = json.loads(done.stdout)
        seen["without"] = [one for one in panels if not counts[one[1]]]
        return not seen["without"]

    try:
        cloud.wait(all_have_data, "data in each panel", timeout_s=300, every_s=5)
    finally:
        print(seen)
    assert seen["rules"] and set(seen["rules"].values()) == {"ok"}
