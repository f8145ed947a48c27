"""The formula ``libvirt.metrics`` on a hypervisor of the lab with a real Prometheus: each panel
about hosts and guests has real data."""

import pytest

from tests.functional.metrics.test_alerts import expressions
from tests.lab import prometheus

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GUEST, CONF = "met1", "/etc/salt/minion.d/virt_exporter.conf"
# in test_metrics_master.py; and of a guest that may write nothing for minutes
ELSEWHERE = {
    "Hosts that answer the master", "Storage pools: may still be promised", "Storage pools: used",
    "Certificates: days left", "High availability: hosts", "High availability: guests",
    "Age of the last good backup", "Disks: seconds for a write",
}  # fmt: skip


@pytest.fixture(scope="module")
def cloud(lab):
    """The lab, with what the machine cannot fetch by itself, and a guest that boots."""
    lab.push("hv1", prometheus.wheel(), prometheus.HOME)
    lab.exec("hv1", f"rm -f {CONF}; systemctl restart salt-minion")
    lab.wait_for_minion("hv1")
    done = lab.run("virt.init", GUEST, 1, 384, "salt://debian.qcow2", seed=False, host="hv1")
    assert done.rc == 0, done
    yield lab
    prometheus.end(lab, "hv1")
    lab.exec("hv1", f"rm -f {CONF}; systemctl restart salt-minion")
    lab.wait_for_minion("hv1")
    lab.run("virt.force_off", GUEST)
    lab.run("virt.purge", GUEST, "force=True")


def applied(lab):
    """The ids of the states that changed something."""
    metrics = {"requirement": f"{prometheus.HOME}/{prometheus.wheel().name}", "every_s": 5}
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
    prometheus.serve(cloud, "hv1", ["127.0.0.1:9177"])
    panels = [(title, text) for title, text in expressions() if title not in ELSEWHERE]
    assert len(panels) > 12
    prometheus.data(cloud, "hv1", panels)
