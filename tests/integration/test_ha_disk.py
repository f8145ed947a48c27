"""High availability with a guest that writes: its disk, which all hosts reach, is read back."""

import itertools
import os
import signal
import time

import pytest

from tests.chaos.faults import of_namespace
from tests.integration.ha import POOL, HaCloud
from tests.integration.migration import counter

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "count1"
# GlusterFS keeps the locks of a host that was cut off until it misses it
LOCKED_S = 120


class Counting(HaCloud):
    """guest: it writes a record with a number and the id of its start, each 100 ms."""

    starts = 1

    def counter(self):
        """It runs on hv1, with all that it is started from on the shared storage."""
        counter.install(self.lab)
        boot = f"{counter.BOOT}/kernel {counter.BOOT}/initrd"
        self.lab.exec("hv1", f"cp {boot} {POOL}/")
        self.guest = counter.Counter(self.lab, NAME, format="raw", folder=POOL)
        self.guest.xml = self.guest.xml.replace(counter.BOOT, POOL)
        self.guest.define("hv1", "64M").start("hv1")

    def wrote_alone(self):
        """Each of its starts wrote after the one before it, and no record is torn or missing; the
        host that it runs on."""
        [host] = self.where(NAME)
        self.guest.counts_on(host, LOCKED_S)  # it boots first, on storage that misses a host
        wrote = [start for _, start in self.guest.records(host)]
        found = [start for start, _ in itertools.groupby(wrote)]
        assert len(found) == len(set(found)) == self.starts, found
        return host

    def is_placed(self):
        return self.status()[1]["guests"][NAME]["state"] == "placed"

    def lost(self, host, timeout_s=60):
        """It runs elsewhere, once more."""
        self.comes_elsewhere(NAME, host, timeout_s)
        # libvirt has one that it cannot start, too, until QEMU says that its disk is locked
        self.lab.wait(self.is_placed, f"{NAME} is placed", LOCKED_S)
        self.starts += 1
        assert self.wrote_alone() != host


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = Counting(ha_lab)
    found.set_up({"max_fences": 100})
    found.well()
    found.counter()
    given = ha_lab.run("virt.ha_enable", NAME)
    assert given.rc == 0, given
    return found


@pytest.fixture
def host(cloud):
    """The host that has the guest, and which is whole again after it."""
    cloud.well()
    yield cloud.wrote_alone()
    for one in cloud.lab.hosts:
        cloud.lab.heal(one)
        cloud.back(one)


def test_a_power_cut(cloud, host):
    cloud.lab.power_off(host)
    cloud.lost(host)


def test_a_cut_network_with_a_lock_that_the_storage_keeps(cloud, host):
    cloud.lab.cut(host)
    cloud.lost(host, LOCKED_S)
    assert not cloud.is_on(host)


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
