"""The exporters of a master and three hypervisors with pools, certificates, high availability and
backups, with a real Prometheus: the panels of the master have data, too."""

import json

import pytest

from tests.functional.metrics.test_alerts import expressions
from tests.integration.ha import HaCloud
from tests.integration.test_metrics import ELSEWHERE
from tests.lab import prometheus

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME, VAULT, HERE = "web1", "/srv/vault", "/srv/here"
EXPORTER = "/etc/salt/minion.d/virt_exporter.conf"
PANELS = ELSEWHERE - {"Disks: seconds for a write"}
POOLS = f"virsh -q pool-define-as here dir --target {HERE}; virsh -q pool-start here"


class Measured(HaCloud):
    """What each machine has set is what docs/how-to/metrics.md says, and a target of backups."""

    def _settings(self, more):
        found = super()._settings(more)
        found["virt"]["backup"] = {"targets": {"vault": {"host": "hv2", "folder": VAULT}}}
        return {**found, "engines": ["virt_ha", {"virt_exporter": {"every_s": 5}}]}


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = Measured(ha_lab)
    engine = json.dumps({"engines": [{"virt_exporter": {"address": "0.0.0.0", "every_s": 5}}]})
    for host in ha_lab.hosts:
        ha_lab.exec(host, f"cat > {EXPORTER}", input=engine)
        ha_lab.exec(host, f"mkdir -p {HERE} && {POOLS}")
    ha_lab.exec("hv2", f"mkdir -m 700 {VAULT}")
    ha_lab.restart_minion(*ha_lab.hosts)
    found.set_up()
    found.well()
    found.started("hv1", NAME)
    found.enabled(NAME)
    done = ha_lab.run("virt.backup", NAME)
    assert done.rc == 0, done
    yield ha_lab
    prometheus.end(ha_lab, "master")


def test_what_only_a_cloud_has_is_in_each_panel(cloud):
    hosts = [f"10.77.0.{10 + index}:9177" for index, _ in enumerate(cloud.hosts, 1)]
    prometheus.serve(cloud, "master", ["127.0.0.1:9178", *hosts])
    panels = [(title, text) for title, text in expressions() if title in PANELS]
    assert {title for title, _ in panels} == PANELS
    prometheus.data(cloud, "master", panels)
