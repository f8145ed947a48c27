"""High availability with a guest that writes: its disk on shared storage is read back."""

import os
import signal
import time

import pytest

from tests.chaos.faults import of_namespace
from tests.integration.ha import LOCKED_S, NAME, Counting
from tests.lab import power

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# from storage that is there again until all guests run
ROOM_S = 90


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = Counting(ha_lab)
    found.set_up({"max_fences": 100})
    found.well()
    found.counter()
    found.enabled(NAME)
    return found


@pytest.fixture
def host(cloud):
    """The host that has the guest, and which is whole again after it."""
    cloud.well()
    yield cloud.wrote_alone()
    for one in cloud.lab.hosts:
        cloud.lab.heal(one)
        cloud.heal_storage(one)
        cloud.back(one)


def test_a_power_cut(cloud, host):
    cloud.lab.power_off(host)
    cloud.lost(host)


def test_a_cut_network_with_a_lock_that_the_storage_keeps(cloud, host):
    cloud.lab.cut(host)
    cloud.lost(host, LOCKED_S)
    assert not cloud.is_on(host)


def test_a_cut_network_with_a_dead_bmc_where_the_watchdog_takes_the_power(cloud, host):
    lab, machine = cloud.lab, cloud.lab.machine(host)
    power.end_bmc(machine)
    try:
        lab.cut(host)
        cloud.lost(host, LOCKED_S)
        assert not cloud.is_on(host)
        assert "its watchdog must have cut" in cloud.status()[1]["hosts"][host]["reason"]
    finally:
        power.begin_bmc(lab, machine, lab.hosts.index(host) + 1)


def test_cut_storage_of_a_host_that_lives(cloud, host):
    cloud.cut_storage(host)
    cloud.lost(host, 2 * LOCKED_S)
    assert cloud.is_on(host)
    assert cloud.status()[1]["hosts"][host]["state"] == "up"


def test_a_host_that_stands_still_and_goes_on_writes_nothing_more(cloud, host):
    """SIGSTOP of all of it; SIGCONT of whatever is left of it when the guest runs elsewhere."""
    machine = cloud.lab.machine(host)
    space = os.readlink(f"/proc/{machine.leader()}/ns/pid")
    for pid in of_namespace(space):
        os.kill(pid, signal.SIGSTOP)
    cloud.comes_elsewhere(NAME, host, LOCKED_S)
    for pid in of_namespace(space):
        os.kill(pid, signal.SIGCONT)
    time.sleep(5)
    cloud.starts += 1
    assert cloud.wrote_alone() != host
    assert not cloud.is_on(host)


def test_a_stopped_minion_is_nothing(cloud, host):
    lab = cloud.lab
    lab.exec(host, "systemctl kill -s KILL salt-minion; systemctl stop salt-minion")
    try:
        time.sleep(40)
        assert cloud.is_on(host)
        assert cloud.wrote_alone() == host
        assert cloud.status()[1]["hosts"][host]["state"] == "up"
    finally:
        lab.exec(host, "systemctl start salt-minion")
        lab.wait_for_minion(host)


def test_the_whole_room_loses_its_power_and_gets_it_back(cloud, host):
    """Master and hypervisors at once; and the storage is there later than those who need it."""
    lab, elsewhere = cloud.lab, next(one for one in cloud.lab.hosts if one != host)
    cloud.started(elsewhere, "web1")
    assert lab.run("virt.ha_enable", "web1").rc == 0
    cloud.well()
    cloud.room_off()
    cloud.room_on()
    cloud.well(ROOM_S)
    cloud.starts += 1
    cloud.wrote_alone()
    assert len(cloud.where("web1")) == 1
