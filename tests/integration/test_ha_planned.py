"""High availability and what is no failure: a host that systemd shuts down, an agent that is
stopped."""

import json
import time

import pytest

from tests.integration.ha import HaCloud

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "web1"
# a guest without a system hears no button; and until a host is off by itself
SETTINGS, DOWN_S = {"max_fences": 100, "shutdown_wait_s": 5}, 120
# longer than it takes until a host that is missed is fenced, and its guests run elsewhere
MISSED_S = 40


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = HaCloud(ha_lab)
    found.set_up(SETTINGS)
    found.well()
    found.started("hv1", NAME)
    given = ha_lab.run("virt.ha_enable", NAME)
    assert given.rc == 0, given
    return found


@pytest.fixture
def host(cloud):
    """The host that has the guest; none is fenced in a test."""
    cloud.well()
    [found] = cloud.where(NAME)
    before = fences(cloud)
    yield found
    cloud.lab.heal(found)
    cloud.back(found)
    cloud.well()
    assert len(cloud.where(NAME)) == 1
    assert fences(cloud) == before


def fences(cloud):
    """What the journal has of fences."""
    journal = cloud.lab.exec("master", "cat /var/cache/salt/master/virt/ha/journal.jsonl").stdout
    return [one for one in map(json.loads, journal.splitlines()) if one["what"] == "fence"]


def goes_down(cloud, host):
    cloud.lab.exec(host, "systemctl --no-block poweroff")
    cloud.lab.wait(lambda: not cloud.is_on(host), f"{host} is off", DOWN_S)


def test_the_guest_of_a_host_that_is_shut_down_is_started_elsewhere(cloud, host):
    """By default, when it will not be back at once. It is missed then, and nobody minds."""
    goes_down(cloud, host)
    cloud.comes_elsewhere(NAME, host, 60)
    time.sleep(MISSED_S)
    found = cloud.status()[1]["hosts"][host]
    assert (found["state"], found["why"]) == (
        "suspected",
        "no guest of high availability runs there",
    )


def test_a_host_whose_agent_was_stopped_in_order_is_not_fenced_however_silent(cloud, host):
    lab = cloud.lab
    lab.exec(host, "systemctl stop salt-virt-ha")
    lab.cut(host)
    time.sleep(MISSED_S)
    assert cloud.is_on(host) and cloud.where(NAME) == [host]
    assert cloud.status()[1]["hosts"][host]["state"] == "resting"
    lab.heal(host)
    lab.exec(host, "systemctl start salt-virt-ha")
    cloud.well()
    assert cloud.where(NAME) == [host]


def test_it_waits_for_its_host_where_that_is_wanted(cloud, host):
    cloud.configure({**SETTINGS, "shutdown_policy": "freeze"})
    cloud.well()
    goes_down(cloud, host)
    time.sleep(MISSED_S)
    assert cloud.where(NAME) == []
    cloud.back(host)
    cloud.lab.wait(lambda: cloud.runs(NAME) == [host], f"{NAME} is back", 60)
