"""High availability with two hypervisors only: the master is the third vote."""

import time

import pytest

from tests.integration.ha import HaCloud
from tests.lab import power, storage
from tests.lab.fixtures import own_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "web1"
# with a BMC; and without, where the watchdog must have fired, and the storage has let its lock go
FENCED_S, FIRED_S = 60, 120
# longer than it takes to fence one
MISSED_S = 40


@pytest.fixture(scope="module")
def cloud(request):
    for lab in own_lab(request, with_power=True, shared=True):
        storage.serve(lab)
        lab.sync()
        found = HaCloud(lab)
        found.set_up({"max_fences": 100})
        found.well()
        found.started("hv1", NAME)
        found.enabled(NAME)
        yield found


@pytest.fixture
def host(cloud):
    """The host that has the guest."""
    cloud.well()
    [found] = cloud.where(NAME)
    yield found
    for one in cloud.lab.hosts:
        cloud.lab.heal(one)
        cloud.back(one)
    cloud.well(240)
    assert len(cloud.where(NAME)) == 1


def test_the_guest_of_one_that_loses_its_power_runs_on_the_other(cloud, host):
    found = cloud.status()[1]["quorum"]
    assert (found["members"], found["needed"]) == (2, 1)
    cloud.lab.power_off(host)
    cloud.comes_elsewhere(NAME, host, FENCED_S)


def test_one_that_is_cut_off_has_cut_its_own_power_before_the_guest_runs_on_the_other(cloud, host):
    """Its BMC is dead."""
    lab = cloud.lab
    machine = lab.machine(host)
    power.end_bmc(machine)
    try:
        lab.cut(host)
        cloud.comes_elsewhere(NAME, host, FIRED_S)
        assert not cloud.is_on(host)
    finally:
        power.begin_bmc(lab, machine, lab.hosts.index(host) + 1)


def test_without_the_master_one_is_no_majority_and_waits_for_it(cloud, host):
    lab = cloud.lab
    [other] = set(lab.hosts) - {host}
    lab.exec("master", "systemctl stop salt-master")
    try:
        lab.power_off(host)
        time.sleep(MISSED_S)
        assert cloud.is_on(other) and cloud.where(NAME) == []
    finally:
        lab.exec("master", "systemctl start salt-master")
        lab.wait_for_minion(other)
    cloud.comes_elsewhere(NAME, host, FIRED_S)
