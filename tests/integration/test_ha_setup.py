"""The section "Set it up" of ha.md, typed on the master of a lab, and operations that are safe
afterwards: none of them powers off a host or a guest."""

import time

import pytest

from tests.integration.ha import HaCloud
from tests.integration.manual import Page

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# the lab's names and addresses
INSTEAD = {"hyper": "hv", "10.0.0.": "10.77.0.1", "10.9.0.": "10.77.0.5"}
NAME = "web1"
RECOVERED_S = 150
# longer than a watchdog that nobody feeds leaves a host its power
UNFED_S = 25
PROGRAM = "/usr/lib/salt-virt/ha-agent.pyz"


class SetUp(Page):
    """cloud: the HaCloud. Some seconds pass before the status is looked at."""

    def __init__(self, cloud, said):
        super().__init__(cloud.lab, "ha.md", INSTEAD, said, only=("Set it up",))
        self.ha = cloud

    def _type(self, command):
        if command == "salt-run virt.ha_status":
            self.ha.well()
        super()._type(command)


def says(*words):
    def check(text):
        assert [word for word in words if word not in text] == [], text

    return check


SAID = {
    ("salt-run virt.fence hv1 test=True", 1): says("hv1 is on"),
    ("salt-run virt.fence hv2 test=True", 1): says("hv2 is on"),
    ("salt-run virt.fence hv3 test=True", 1): says("hv3 is on"),
    ("salt-run virt.ha_status", 1): says("hv1", "hv2", "hv3", "placed"),
    ("salt-run virt.ha_simulate lose=hv1", 1): says(NAME),
}


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = HaCloud(ha_lab)
    found.prepare()
    found.started("hv1", NAME)
    SetUp(found, SAID).follow()
    return found


@pytest.fixture
def at_rest(cloud):
    """Nothing may happen: all hosts are on afterwards, and the guest is the same process."""
    cloud.well()
    [host] = cloud.where(NAME)
    assert cloud.status()[1]["hosts"][host]["watchdog"] == "armed"
    before = emulator(cloud, host)
    yield host
    cloud.well()
    assert [one for one in cloud.lab.hosts if not cloud.is_on(one)] == []
    assert emulator(cloud, host) == before


def emulator(cloud, host):
    """The process of the guest."""
    return cloud.lab.exec(host, ["cat", f"/run/libvirt/qemu/{NAME}.pid"]).stdout


def applied(cloud):
    """What the formula's libvirt.ha changes, of all hosts."""
    found = cloud.lab.salt("hv*", "state.apply", "libvirt.ha", timeout=120)
    assert sorted(found) == cloud.lab.hosts
    states = [state for answer in found.values() for state in answer.values()]
    assert [state for state in states if not state["result"]] == []
    return [state["changes"] for state in states if state["changes"]]


def test_a_second_apply_changes_nothing(cloud):
    assert applied(cloud) == []


def test_a_power_cut_and_the_guest_runs_elsewhere(cloud):
    [host] = cloud.where(NAME)
    cloud.lab.power_off(host)
    assert cloud.comes_elsewhere(NAME, host, 2 * RECOVERED_S) < RECOVERED_S
    assert "its fence agent reports that it is off" in cloud.status()[1]["hosts"][host]["reason"]
    cloud.back(host)
    cloud.well()
    assert len(cloud.where(NAME)) == 1


def test_an_update_of_the_agent_while_guests_run(cloud, at_rest):
    lab = cloud.lab
    for host in lab.hosts:  # the program of before: Python takes it as it is
        lab.exec(host, f"echo before >> {PROGRAM}; systemctl reload salt-virt-ha")
    time.sleep(UNFED_S)
    done = ["switches to the new version", "replaced"]
    assert [sorted(one.values()) for one in applied(cloud)] == [done] * len(lab.hosts)
    assert applied(cloud) == []
    time.sleep(UNFED_S)


def test_neither_salt_nor_libvirts_packages_fire_a_watchdog(cloud, at_rest):
    lab = cloud.lab
    lab.salt("hv*", "saltutil.sync_all", timeout=120)
    for host in lab.hosts:
        before = lab.exec(host, "systemctl show -p MainPID libvirtd").stdout
        lab.exec(host, "dpkg-reconfigure -f noninteractive libvirt-daemon libvirt-daemon-system; "
                       "systemctl restart libvirtd")  # fmt: skip
        assert lab.exec(host, "systemctl show -p MainPID libvirtd").stdout != before
        lab.exec(host, "systemctl kill -s KILL salt-minion; systemctl stop salt-minion")
    # what an update does between an old libvirt and a new one
    sockets = "libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd-tls.socket"
    lab.exec(at_rest, f"systemctl stop libvirtd {sockets}")
    time.sleep(UNFED_S)
    for host in lab.hosts:
        lab.exec(host, "systemctl start libvirtd.socket libvirtd salt-minion")
    lab.wait_for_minion(*lab.hosts)
