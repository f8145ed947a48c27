"""The hosts' answers about their inventory, also invalid ones."""

import copy

import pytest

pytest.importorskip("salt")

from saltvirt.fleet.answer import FAILED, Answer, down, from_return
from saltvirt.operations.cluster import inventory
from saltvirt.operations.move import evacuate
from saltvirt.placement import choose, facts, policy

WHOLE = {"cpus": 2, "memory_kib": 1024, "pools": {"ssd": {"free_bytes": 5}}}


class Fleet:
    """Answers that were prepared."""

    def __init__(self, *answers):
        self.answers, self.asked = answers, []

    def hosts(self):
        return [answer.host for answer in self.answers]

    def ask(self, hosts, fun, kwarg=None, **options):
        self.asked.append((hosts, fun, kwarg, options))
        yield from self.answers


def test_each_host_is_data_or_a_reason():
    old = {**WHOLE, "pools": ["ssd"]}  # as an older version of the module tells it
    fleet = Fleet(
        Answer("hv2", data=WHOLE), Answer("hv1", data=WHOLE), down("gone"),
        Answer("sick", error="libvirt is not there", kind=FAILED), Answer("old", data=old),
        Answer("odd", data="what?"),
    )  # fmt: skip
    hosts, unreachable = inventory.gather(fleet)
    assert [host.name for host in hosts] == ["hv1", "hv2"]
    assert unreachable["gone"] == "down: no connection to the master"
    assert unreachable["sick"] == "libvirt is not there"
    assert unreachable["old"].endswith("expects: pools is not a mapping")
    assert set(unreachable) == {"gone", "sick", "old", "odd"}


def test_a_guest_is_asked_about_with_patience_when_it_shall_be_made():
    fleet = Fleet(Answer("hv1", data={**WHOLE, "guest": {"disk_bytes": 7}}))
    hosts, _ = inventory.gather(fleet, guest={"name": "web1"}, patient=True)
    assert hosts[0].needs.disk_bytes == 7
    [(hosts, fun, asked, options)] = fleet.asked
    assert (hosts, fun, asked) == (["hv1"], "virt.inventory", {"guest": {"name": "web1"}})
    assert options["patient"]


STORE = {"total_bytes": 10**12, "free_bytes": 10**11, "promised_bytes": 0, "shared": "nfs"}
GUEST = {
    "uuid": "u", "state": "running", "vcpus": 1, "memory_kib": 1024, "max_memory_kib": 1,
    "autostart": True, "groups": ["g"], "deployment": "d", "type": "kvm", "page_kib": 2048,
    "disks": [], "labels": {}, "bridges": [], "networks": [],
}  # fmt: skip
FULL = {
    "cpus": 8, "memory_kib": 2**26, "arch": "x86_64", "types": ["kvm"], "arches": ["x86_64"],
    "hugepages": {"2048": 1024}, "hugepage_kib": 2048, "guests": {"a": GUEST},
    "arriving": {"b": {"memory_kib": 1, "vcpus": 1, "page_kib": 0}},
    "images_folder": {"path": "/x", **STORE, "store": "fs1"}, "images": ["i"], "bridges": ["br0"],
    "networks": ["n"], "stores": {"fs1": STORE}, "mounts": {"/": "fs1"},
    "pools": {"p": {**STORE, "store": "fs1"}}, "labels": {}, "ratios": {"cpu": 4},
    "placement": {}, "maintenance": None, "disk_profiles": ["fast"], "nic_profiles": ["default"],
    "guest": {
        "disk_bytes": 1, "pools": {"p": 1}, "bridges": ["br0"], "networks": ["n"], "vcpus": 1,
        "memory_kib": 1024, "disks": [],
    },
}  # fmt: skip
WRONG = [None, "x", -1, float("inf"), float("nan"), [[1]], ["x"], {"a": [1]}, True, [{}]]


def places(data, above=()):
    for key, value in data.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


@pytest.mark.parametrize("place", list(places(FULL)), ids=".".join)
def test_nothing_that_one_host_says_keeps_another_from_getting_guests(place):
    rules = policy.PlacementPolicy()
    asked = facts.PlacementRequest("w", 1, 1024, by_profile=True, arch="x86_64", groups=("g",))
    for wrong in WRONG:
        said = copy.deepcopy(FULL)
        inner = said
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = wrong
        evil = from_return("evil", {"return": said})
        hosts, unreachable = inventory.gather(Fleet(evil, Answer("good", copy.deepcopy(FULL))))
        assert {host.name for host in hosts} | set(unreachable) == {"evil", "good"}
        assert "good" in [one.host for one in choose.choose(hosts, asked, rules).ranked]
        evacuate.plan(hosts, "good", rules)


def test_a_whole_answer_is_read():
    hosts, unreachable = inventory.gather(Fleet(Answer("good", FULL)))
    assert [host.name for host in hosts] == ["good"]
    assert unreachable == {}
    info = inventory.summary(hosts[0], policy.PlacementPolicy())
    assert (info["disk_profiles"], info["nic_profiles"]) == (["fast"], ["default"])
    assert info["creating"] == []


def test_a_guest_in_the_making_is_named():
    making = {**FULL, "guests": {"a": {**GUEST, "creating": True}, "b": GUEST}}
    hosts, _ = inventory.gather(Fleet(Answer("good", making)))
    assert inventory.summary(hosts[0], policy.PlacementPolicy())["creating"] == ["a"]
