"""High availability with real parts: a hypervisor dies and its guest runs again, never twice."""

import time

import pytest

from tests.integration.ha import HaCloud
from tests.lab import power

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# what is reached is in ha.md; these are the bounds of a machine that does other work, too
BMC_S, WATCHDOG_S = 150, 200


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = HaCloud(ha_lab)
    found.set_up()
    found.well()
    found.started("hv1", "web1")
    number = ha_lab.exec("hv1", "virsh domid web1").stdout
    found.enabled("web1")
    found.well()
    assert ha_lab.exec("hv1", "virsh domid web1").stdout == number
    return found


@pytest.fixture
def host(cloud):
    """The host that has web1, and which is whole again after it."""
    cloud.well()
    [found] = cloud.where("web1")
    yield found
    cloud.lab.heal(found)
    cloud.back(found)
    cloud.well()


def state(cloud, host):
    return cloud.status()[1]["hosts"][host]


def test_each_fence_is_reached_and_lets_us_in(cloud):
    lab = cloud.lab
    for one in lab.hosts:
        found = lab.run("virt.fence", one, test=True)
        assert (found.rc, f"{one} is on" in found.stdout) == (0, True), found
    lab.exec("master", "cp -p /etc/salt/bmc /etc/salt/bmc.right; echo wrong1 > /etc/salt/bmc")
    try:
        found = lab.run("virt.fence", "hv1", test=True)
    finally:
        lab.exec("master", "mv /etc/salt/bmc.right /etc/salt/bmc")
    assert found.rc == 1 and "wrong1" not in found.stdout + found.stderr


def test_no_other_verb_touches_it(cloud, host):
    found = cloud.lab.run("virt.force_off", "web1")
    assert found.rc == 1 and "is managed by high availability" in found.stdout
    assert cloud.where("web1") == [host]


def test_it_does_not_start_with_its_host_whoever_says_so(cloud, host):
    """Else a host that comes back would start it, wherever it runs by then."""
    lab, flag = cloud.lab, "virsh dominfo web1 | grep Autostart"

    def keeps(whether):
        lab.wait(lambda: bool(lab.call(host, "virt.ha_kept", "web1")) is whether, "its agent", 30)

    asked = ["salt", host, "virt.set_autostart", "web1", "on"]
    found = lab.exec("master", asked, check=False)
    assert found.returncode == 1 and "high availability starts it" in found.stdout, found
    lab.exec(host, "virsh -q autostart web1")
    lab.wait(lambda: "disable" in lab.exec(host, flag).stdout, "the agent takes it back", 20)
    assert lab.run("virt.ha_disable", "web1").rc == 0
    keeps(False)
    lab.exec(host, "virsh -q autostart web1")
    try:
        assert lab.run("virt.ha_enable", "web1").rc == 0
        keeps(True)
        lab.wait(lambda: "disable" in lab.exec(host, flag).stdout, "the agent takes it away", 20)
        assert lab.run("virt.ha_disable", "web1").rc == 0
        lab.wait(lambda: "enable" in lab.exec(host, flag).stdout, "it gives it back", 20)
        time.sleep(5)
        assert "enable" in lab.exec(host, flag).stdout, "it stays so"
    finally:
        lab.exec(host, "virsh -q autostart --disable web1")
        lab.run("virt.ha_enable", "web1")


def test_a_power_cut_with_a_bmc(cloud, host):
    cloud.lab.power_off(host)
    assert cloud.comes_elsewhere("web1", host, 2 * BMC_S) < BMC_S
    assert "its fence agent reports that it is off" in state(cloud, host)["reason"]
    assert cloud.status()[0] == 1
    cloud.back(host)
    found = cloud.well()
    assert len(cloud.where("web1")) == 1
    assert found["hosts"][host]["state"] == "up"
    there = cloud.lab.exec(host, "virsh list --all --name").stdout.split()
    assert "web1" not in there


def test_a_power_cut_with_a_dead_bmc_by_the_watchdog_alone(cloud, host):
    machine = cloud.lab.machine(host)
    power.end_bmc(machine)
    try:
        cloud.lab.power_off(host)
        assert cloud.comes_elsewhere("web1", host, 2 * WATCHDOG_S) < WATCHDOG_S
        assert "its watchdog must have cut its power" in state(cloud, host)["reason"]
    finally:
        power.begin_bmc(cloud.lab, machine, cloud.lab.hosts.index(host) + 1)


def test_a_host_that_is_cut_off_is_off_before_its_guest_runs_elsewhere(cloud, host):
    cloud.lab.cut(host)
    assert cloud.comes_elsewhere("web1", host, 2 * BMC_S) < BMC_S
    assert not cloud.is_on(host)


def test_an_engine_that_is_killed_again_and_again_goes_on(cloud, host):
    cloud.lab.power_off(host)
    for _ in range(4):
        time.sleep(3)
        cloud.lab.exec("master", "pkill -9 -f 'Engine.*[v]irt_ha'", check=False)
    cloud.comes_elsewhere("web1", host, 120)
    assert len(cloud.where("web1")) == 1


def test_when_only_the_master_is_gone_nobody_fences_himself(cloud, host):
    lab = cloud.lab
    lab.exec("master", "systemctl kill -s KILL salt-master; systemctl stop salt-master")
    try:
        time.sleep(40)
        assert [one for one in lab.hosts if not cloud.is_on(one)] == []
        assert cloud.where("web1") == [host]
    finally:
        lab.exec("master", "systemctl start salt-master")
        lab.reconnected()


def test_disarmed_nothing_is_done_and_watchdogs_rest(cloud, host):
    lab = cloud.lab
    assert lab.run("virt.ha_disarm").rc == 0
    try:
        lab.power_off(host)
        time.sleep(30)
        assert cloud.where("web1") == []
        assert state(cloud, host)["state"] == "suspected"
        others = [one for one in lab.hosts if one != host]
        assert all(state(cloud, one)["watchdog"] == "at rest" for one in others)
    finally:
        cloud.back(host)
        assert lab.run("virt.ha_arm").rc == 0


def test_a_persons_word_is_refused_of_a_host_that_answers_and_taken_of_one_that_does_not(
    cloud, host
):
    lab = cloud.lab
    found = lab.run("virt.ha_confirm_off", host)
    assert found.rc == 1 and "is not off" in found.stdout
    machine = lab.machine(host)
    power.end_bmc(machine)
    try:
        lab.power_off(host)
        lab.wait(lambda: state(cloud, host)["state"] == "fencing", "it is fenced", 60)
        assert lab.run("virt.ha_confirm_off", host).rc == 0
        cloud.comes_elsewhere("web1", host, 60)
        assert "an operator confirmed" in state(cloud, host)["reason"]
    finally:
        power.begin_bmc(lab, machine, lab.hosts.index(host) + 1)
