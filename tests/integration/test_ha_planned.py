"""High availability and planned events: a host that systemd shuts down or reboots, an agent that is
stopped."""

import json
import time

import pytest

from tests.integration.ha import HaCloud
from tests.integration.migration import counter

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
    counter.install(ha_lab)  # the formula: guests migrate over TLS
    found.well()
    found.started("hv1", NAME)
    found.enabled(NAME)
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


def journal(cloud):
    """All that was decided and done."""
    found = cloud.lab.exec("master", "cat /var/lib/salt/master/virt/ha/journal.jsonl").stdout
    return [*map(json.loads, found.splitlines())]


def fences(cloud):
    """What the journal has of fences."""
    return [one for one in journal(cloud) if one["kind"] == "fence"]


def reasons(cloud, before):
    """Why the guest changed its state since the journal was so long."""
    return [one["reason"] for one in journal(cloud)[before:] if one["kind"] == "guest"]


def began(cloud, host):
    """How the guest that runs there came to be there, as libvirt has it."""
    return cloud.lab.exec(host, f"virsh domstate --reason {NAME}").stdout.strip()


def goes_down(cloud, host, verb="poweroff"):
    """What runs a machine of the lab ends, too, where the machine boots again."""
    cloud.lab.exec(host, f"systemctl --no-block {verb}")
    cloud.lab.wait(lambda: not cloud.is_on(host), f"{host} is off", DOWN_S)


def test_the_guest_of_a_host_that_is_shut_down_is_started_elsewhere(cloud, host):
    """By default, when it will not be back at once. It is missed then, and nobody minds."""
    goes_down(cloud, host)
    cloud.comes_elsewhere(NAME, host, 60)
    time.sleep(MISSED_S)
    found = cloud.status()[1]["hosts"][host]
    assert (found["state"], found["reason"]) == (
        "suspected",
        "it runs no guests of high availability",
    )


def test_the_guest_of_a_host_that_boots_again_waits_for_it(cloud, host):
    """By default."""
    before = len(journal(cloud))
    goes_down(cloud, host, "reboot")
    assert cloud.where(NAME) == []
    cloud.back(host)
    cloud.lab.wait(lambda: cloud.runs(NAME) == [host], f"{NAME} is back", 60)
    cloud.well()
    assert began(cloud, host) == "running (booted)"
    assert "its host is shutting down" not in reasons(cloud, before)


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


def test_it_moves_live_first_where_that_is_wanted(cloud, host):
    """And back, live, when its host is there again."""
    cloud.configure({**SETTINGS, "shutdown_policy": "migrate", "shutdown_wait_s": 90})
    cloud.well()
    before = len(journal(cloud))
    goes_down(cloud, host)
    cloud.lab.wait(
        lambda: "its migration has completed" in reasons(cloud, before),
        "its migration has completed",
        30,
    )
    [there] = cloud.runs(NAME)
    assert (there != host, began(cloud, there)) == (True, "running (migrated)")
    assert "its host is shutting down" not in reasons(cloud, before)
    cloud.back(host)
    cloud.lab.wait(
        lambda: reasons(cloud, before).count("its migration has completed") == 2, "it is back", 120
    )
    assert (cloud.runs(NAME), began(cloud, host)) == ([host], "running (migrated)")
