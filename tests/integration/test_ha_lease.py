"""High availability with leases of the disks alone: no host has a watchdog or a BMC."""

import time

import pytest

from tests.integration.ha import LOCKED_S, NAME, POOL, Counting

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# the agents' port: of one that does not get through, its host is silent, and its storage is there
SILENT = """table inet silent {
    chain in { type filter hook input priority 0; tcp dport 16516 drop; tcp sport 16516 drop; }
    chain out { type filter hook output priority 0; tcp dport 16516 drop; tcp sport 16516 drop; }
}"""


class Leasing(Counting):
    strict = True


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = Leasing(ha_lab)
    members = {
        host: {"address": f"10.77.0.{10 + index}", "watchdog": None}
        for index, host in enumerate(ha_lab.hosts, 1)
    }
    found.set_up({"max_fences": 100, "members": members, "leases": [POOL]})
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
        cloud.back(one)
        cloud.lab.exec(one, "nft delete table inet silent 2>/dev/null", check=False)


def test_a_power_cut(cloud, host):
    cloud.lab.power_off(host)
    cloud.lost(host, LOCKED_S)
    guest = cloud.status()[1]["guests"][NAME]
    assert guest["state"] == "placed"


def test_a_host_that_was_cut_off_and_is_back_writes_nothing_more(cloud, host):
    """Nothing took its power: it lives, and so does QEMU there until the agent is heard again."""
    lab = cloud.lab
    lab.exec(host, "systemctl kill -s STOP salt-virt-ha")  # the agent would kill it at once
    lab.cut(host)
    cloud.comes_elsewhere(NAME, host, 2 * LOCKED_S)
    lab.wait(cloud.is_placed, f"{NAME} is placed", LOCKED_S)
    cloud.starts += 1
    [new] = [one for one in cloud.where(NAME) if one != host]
    cloud.guest.counts_on(new, LOCKED_S)
    lab.heal(host)
    time.sleep(20)  # it reaches its storage again by then, and tries to write all the time
    assert host in cloud.where(NAME)
    lab.exec(host, "systemctl kill -s CONT salt-virt-ha")
    lab.wait(lambda: cloud.where(NAME) == [new], "the old one is killed", 60)
    assert cloud.wrote_alone() == new


def test_a_silent_host_that_writes_keeps_its_guest(cloud, host):
    lab = cloud.lab
    lab.exec(host, ["nft", "-f", "-"], input=SILENT)
    began = time.monotonic()
    while time.monotonic() - began < 75:
        assert cloud.runs(NAME) == [host]
        time.sleep(2)
    found = cloud.status()[1]
    assert found["hosts"][host]["state"] == "fencing"
    assert found["guests"][NAME]["state"] == "blocked"
    assert cloud.wrote_alone() == host
