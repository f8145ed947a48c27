"""High availability with two masters: exactly one of them acts."""

import json
import time

import pytest

from tests.integration.ha import HaCloud
from tests.integration.masters import FIRST, OTHER, SECOND, join, run
from tests.integration.masters import START as STARTED

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "web1"
CONFIGS = {"master": FIRST, "second": OTHER}
UNITS = {"master": "salt-master", "second": "second-master"}
# by the group of its process the second one is known to nftables
GROUP = "games"
START = STARTED.replace("--unit", f"-p Group={GROUP} --unit")
BEGIN = {"master": "systemctl start salt-master", "second": START}
# where agents listen; where each master listens to minions
AGENTS, SALT = 16516, {"master": "4505, 4506", "second": "5505, 5506"}
# until the lead is another master's, the host is fenced, and the guest runs
TAKEN_S = 90


class TwoMasters(HaCloud):
    """The second one is on the same machine, with a name, a cache and a certificate of its own."""

    def _settings(self, more):
        found = super()._settings(more)
        found["virt"]["ha"]["masters"] = [*CONFIGS]
        return found

    def second(self):
        """It begins."""
        found = self._settings({"max_fences": 100})
        found["virt"]["ha"]["name"] = "second"
        path = f"{OTHER}/master.d/virt.conf"
        self.lab.exec("master", SECOND)
        self.lab.exec("master", f"cat > {path}", input=json.dumps(found))
        join(self.lab)
        # its engine came with what was synced after it had begun
        self.lab.exec("master", f"systemctl stop second-master; {START}")

    def cut_master(self, name, hosts):
        """That master alone is cut off from these hosts: its engine, and Salt's."""
        group = ("==" if name == "second" else "!=") + f" {GROUP}"
        addresses = ", ".join(f"10.77.0.{11 + self.lab.hosts.index(one)}" for one in hosts)
        self.lab.exec("master", ["nft", "-f", "-"], input=f"""table inet split {{
            chain out {{
                type filter hook output priority 0
                ip daddr {{ {addresses} }} tcp dport {AGENTS} meta skgid {group} drop
                ip daddr {{ {addresses} }} tcp sport {{ {SALT[name]} }} drop
            }}
        }}""")  # fmt: skip

    def heal_master(self):
        """Both reach all hosts again."""
        self.lab.exec("master", "nft delete table inet split 2>/dev/null", check=False)

    def at(self, name):
        """(exit code, what its virt.ha_status says)."""
        found, code = run(self.lab, CONFIGS[name], "virt.ha_status")
        return code, found["ha"]

    def hears(self, name):
        """How many hosts that master hears."""
        return self.at(name)[1]["quorum"]["heard"]

    def leaders(self):
        """Who says of himself that he leads, and is at work."""

        def leads(name):
            found = self.at(name)[1]["engine"]
            return found["leading"] and not found["problem"]

        found = [*filter(leads, CONFIGS)]
        # the lead may have been handed on from the first to the second between the two questions
        return found if len(found) < 2 else [*filter(leads, found[:1]), *found[1:]]

    def leader(self):
        """The one who leads."""
        found = self.lab.wait(lambda: [*self.leaders()][:1], "somebody leads", TAKEN_S, 1)
        return found[0]

    def status(self):
        """As the one who leads says."""
        return self.at((self.leaders() or ["master"])[0])


@pytest.fixture(scope="module")
def cloud(ha_lab):
    found = TwoMasters(ha_lab)
    found.set_up({"max_fences": 100})
    found.second()
    found.started("hv1", NAME)
    for name in CONFIGS:
        ha_lab.wait(lambda name=name: found.hears(name) == 3, f"{name} hears all", TAKEN_S, 1)
        assert "none does before the first request" in str(found.at(name)[1]["problems"])
    given, code = run(ha_lab, FIRST, "virt.ha_enable", NAME)
    assert code == 0, given
    found.well()
    return found


@pytest.fixture
def host(cloud):
    """The host that has the guest."""
    cloud.well()
    [found] = cloud.where(NAME)
    yield found
    cloud.back(found)
    cloud.well()
    assert len(cloud.where(NAME)) == 1


def one_leads(cloud):
    """Looked at for a while: it may be handed on, but is never held twice."""
    for _ in range(5):
        assert len(cloud.leaders()) <= 1
        time.sleep(1)

    def agreed():
        found = cloud.leaders()
        return found and all(cloud.at(one)[1]["engine"]["leader"] == found[0] for one in CONFIGS)

    cloud.lab.wait(agreed, "both know who leads", TAKEN_S, 1)


def test_one_leads_and_the_other_knows_what_was_wanted(cloud, host):
    one_leads(cloud)
    [other] = set(CONFIGS) - {cloud.leader()}
    cloud.lab.wait(lambda: NAME in cloud.at(other)[1]["guests"], "the other one knows", 30, 1)
    told, code = run(cloud.lab, CONFIGS[other], "virt.ha_ignore", NAME)
    assert code == 1 and cloud.leader() in str(told)


def test_the_other_takes_over_from_one_that_is_killed(cloud, host):
    lab, leader = cloud.lab, cloud.leader()
    lab.exec("master", f"systemctl kill -s KILL {UNITS[leader]}; systemctl stop {UNITS[leader]}",
             check=False)  # fmt: skip
    try:
        lab.power_off(host)
        cloud.comes_elsewhere(NAME, host, TAKEN_S)
        assert [cloud.leader()] == [*set(CONFIGS) - {leader}]
    finally:
        lab.exec("master", BEGIN[leader])
        lab.wait_for_minion(*(one for one in lab.hosts if one != host))
    one_leads(cloud)


def test_one_that_stood_still_while_it_led_does_nothing_when_it_goes_on(cloud, host):
    lab, leader = cloud.lab, cloud.leader()
    lab.exec("master", f"systemctl kill -s STOP {UNITS[leader]}")
    try:
        lab.power_off(host)
        cloud.comes_elsewhere(NAME, host, TAKEN_S)
        [there] = cloud.where(NAME)
        number = lab.exec(there, f"virsh domid {NAME}").stdout
    finally:
        lab.exec("master", f"systemctl kill -s CONT {UNITS[leader]}")
    one_leads(cloud)
    assert cloud.where(NAME) == [there]
    assert lab.exec(there, f"virsh domid {NAME}").stdout == number
    assert all(cloud.is_on(one) for one in lab.hosts if one != host)


def test_of_two_that_the_network_splits_one_acts_at_most(cloud, host):
    """The one who leads is left with the guest's host alone; the other one has all. Then that host
    dies, and the first is back with what it knew."""
    lab, leader = cloud.lab, cloud.leader()
    [other] = set(CONFIGS) - {leader}
    rest = [one for one in lab.hosts if one != host]
    number = lab.exec(host, f"virsh domid {NAME}").stdout
    cloud.cut_master(leader, rest)
    try:

        def taken():
            found = cloud.leaders()
            assert len(found) <= 1 and len(cloud.where(NAME)) <= 1
            return found == [other]

        lab.wait(taken, f"{other} leads", TAKEN_S, 0.5)
        cloud.well()
        assert cloud.where(NAME) == [host]
        assert lab.exec(host, f"virsh domid {NAME}").stdout == number
        lab.power_off(host)

        def elsewhere():
            assert cloud.leaders() in ([], [other]) and len(cloud.where(NAME)) <= 1
            return cloud.runs(NAME)

        [there] = lab.wait(elsewhere, "it runs elsewhere", TAKEN_S, 0.5)
        number = lab.exec(there, f"virsh domid {NAME}").stdout
        assert all(cloud.is_on(one) for one in rest)
    finally:
        cloud.heal_master()
    one_leads(cloud)
    assert cloud.where(NAME) == [there]
    assert lab.exec(there, f"virsh domid {NAME}").stdout == number
