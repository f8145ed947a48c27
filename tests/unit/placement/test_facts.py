"""A host's answer becomes the facts of placement, field by field."""

import re
from dataclasses import replace

import pytest

from saltvirt.errors import BadAnswer
from saltvirt.placement import account, facts, policy
from saltvirt.placement.facts import (
    DiskFootprint,
    Guest,
    Host,
    Needs,
    PlacementRequest,
    StoragePool,
    StorageSpace,
)
from tests.fakes import inventory as inventories
from tests.unit.placement import NOTHING_BESIDE

PLAIN = policy.from_config(NOTHING_BESIDE)
STORE = {"total_bytes": 9, "free_bytes": 5, "promised_bytes": 1, "shared": "nas"}


def test_what_a_host_does_not_tell_is_nothing():
    least = {"cpus": 2, "memory_kib": 1024}
    assert inventories.host("hv1", least) == Host("hv1", 2, 1024)
    nothing = ("guest", "labels", "ratios", "placement", "hugepage_kib", "maintenance")
    empty = dict.fromkeys(nothing)
    assert inventories.host("hv1", {**least, **empty}) == Host("hv1", 2, 1024)
    needs = {"disk_bytes": 7, "cpu_models": None}
    found = inventories.host("hv1", {**least, "guest": needs})
    assert found.needs == Needs(disk_bytes=7)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"cpus": "2"}, "cpus is not a number from 0"),
        ({"guest": {"memory_kib": "much"}}, "guest.memory_kib is not a number from 0"),
        ({"guest": {"disks": [{"size_bytes": 1}], "page_kib": [1]}}, "guest.page_kib is not"),
        ({"guest": {"disks": [{}]}}, "guest.disks.0 is not complete: size_bytes is missing"),
        ({"guests": {"a": {"memory_kib": 1, "max_memory_kib": "much"}}}, "guests.a.max_memory_kib"),
        ({"guests": None}, "guests is not a mapping"),
        ({"hugepages": {"2048": 1}, "memory_kib": [1]}, "memory_kib is not a number"),
        ({"mounts": {"/": "/gone"}, "pools": {"p": 5}}, "pools.p is not a mapping"),
    ],
)
def test_what_is_wrong_is_named_when_it_is_read(wrong, where):
    """And costs only the host that says it; in a choice it would cost all of them."""
    with pytest.raises(BadAnswer, match=f"^hv1: {re.escape(where)}"):
        inventories.host("hv1", {"cpus": 2, "memory_kib": 1024, **wrong})


@pytest.mark.parametrize("wrong", [{"mounts": {"/": "/gone"}}, {"hugepages": {"x": 1}}])
def test_what_does_not_add_up_is_known_when_it_is_read(wrong):
    with pytest.raises((ValueError, LookupError)):
        inventories.host("hv1", {"cpus": 2, "memory_kib": 1024, **wrong})


def test_the_largest_numbers_that_a_host_may_tell_can_be_counted():
    """Else it would cost all hosts, in a choice."""
    most = 2**63 - 1
    said = {"cpus": most, "memory_kib": most, "hugepages": {"2048": most}, "hugepage_kib": most,
            "guests": {"a": {"vcpus": most, "memory_kib": most, "max_memory_kib": most}},
            "arriving": {"b": {"vcpus": most, "memory_kib": most}},
            "guest": {"vcpus": most, "memory_kib": most, "page_kib": 0}}  # fmt: skip
    for limits in ({}, {"reserved_memory_kib": 2**60, "stopped_ratio": 2**60}):
        told = {**said, "placement": limits, "ratios": {"memory": 2**60}}
        host = inventories.host("hv1", told)
        asked = PlacementRequest("w", 1, 1, by_profile=True).for_host(host)
        assert host.free_memory_kib(PLAIN) < most * 2**60
        assert account.demand(asked, host, PLAIN)[2] == {most: most}


def test_all_that_a_host_tells():
    guest = {
        "uuid": "u", "state": "running", "vcpus": 2, "memory_kib": 8, "autostart": True,
        "groups": ["web"], "deployment": "d", "max_memory_kib": 16, "page_kib": 2048, "type": "kvm",
        "creating": True, "of a newer version": [],
    }  # fmt: skip
    arriving = {"vcpus": 1, "memory_kib": 4, "page_kib": 0}
    said = {
        "cpus": 2, "memory_kib": 1024, "guests": {"b": guest, "a": {}}, "arriving": {"c": arriving},
        "arch": "x86_64", "arches": ["x86_64"], "types": ["kvm"], "bridges": ["br0"],
        "images_folder": {"total_bytes": 30, "free_bytes": 20, "promised_bytes": 10,
                          "store": "/"},
        "networks": ["lan"], "pools": {"p": {**STORE, "store": "/"}}, "images": ["i"],
        "labels": {"rack": "a"}, "maintenance": "disks", "ratios": {"cpu": 0},
        "placement": {"cpu_ratio": 1}, "hugepages": {"2048": 512}, "hugepage_kib": 2048,
        "stores": {"/": STORE}, "mounts": {"/": "/"}, "silent": ["/nfs"],
        "guest": {"disk_bytes": 7, "bridges": ["br1"], "networks": ["n"], "cpu_models": ["m"],
                  "disks": [{"size_bytes": 3, "pool": "p"}]},
    }  # fmt: skip
    found = inventories.host("hv1", said)
    assert found == Host(
        "hv1", 2, 1024,
        guests=(
            Guest("a"),
            Guest("b", "u", "running", 2, 8, True, ("web",), "d", creating=True,
                  max_memory_kib=16, page_kib=2048, type="kvm"),
        ),
        arriving=(Guest("c", vcpus=1, memory_kib=4, page_kib=0),),
        arch="x86_64", arches=("x86_64",), types=("kvm",), disk_total_bytes=30, disk_free_bytes=20,
        disk_promised_bytes=10, bridges=frozenset({"br0"}), networks=frozenset({"lan"}),
        pools={"p": StoragePool(9, 5, 1, "nas", store="/")}, images=frozenset({"i"}),
        labels={"rack": "a"}, maintenance="disks", ratios={"cpu": 0}, limits={"cpu_ratio": 1},
        needs=Needs(disk_bytes=7, bridges=frozenset({"br1"}), networks=frozenset({"n"}),
                    cpu_models=frozenset({"m"}), disks=(DiskFootprint(3, pool="p"),)),
        hugepages={2048: 512}, page_kib=2048, stores={"/": StorageSpace(9, 5, 1, "nas")},
        mounts={"/": "/"}, images_store="/", silent=("/nfs",),
    )  # fmt: skip
    told = facts.Inventory.from_answer(said, "hv1").to_answer()
    assert {key: told[key] for key in said} == {
        **said, "guests": {"a": Guest("a").to_answer(), "b": told["guests"]["b"]},
        "images_folder": {**said["images_folder"], "path": None},
        "stores": {"/": STORE}, "guest": {**told["guest"], **said["guest"]},
    }  # fmt: skip
    assert told["guests"]["b"].items() == {k: v for k, v in guest.items() if " " not in k}.items()
    assert "name" not in told["guests"]["a"]
    assert "silent" not in facts.Inventory(1, 1).to_answer()
    assert found.ratio(PLAIN, "cpu") == 0.0, "a host that takes nobody by its own ratio"
    assert found.ratio(PLAIN, "memory") == 1.0


def test_who_is_meant_to_run():
    for state, more, runs in (
        ("running", {}, True), ("paused", {}, True), ("pmsuspended", {}, True),
        ("shutdown", {}, False), ("crashed", {}, False), ("shutdown", {"creating": True}, True),
    ):  # fmt: skip
        assert Guest("a", state=state, **more).meant_to_run is runs
    assert Guest("a", autostart=True).meant_to_run


def test_a_guest_by_the_profiles_of_the_host_that_is_asked():
    asked = PlacementRequest("new", 1, 2, disk_bytes=3, bridges=frozenset({"a"}),
                             networks=frozenset({"c"}), pools={"p": 1, "q": 1},
                             disks=(DiskFootprint(1),),
                             by_profile=True)  # fmt: skip
    plain = Host("hv1", 1, 1)
    assert asked.for_host(plain) is asked
    needs = Needs(disk_bytes=4, pools={"q": 5}, bridges=frozenset({"b"}),
                  networks=frozenset({"d"}), cpu_model="m", disks=(DiskFootprint(2),), vcpus=6,
                  memory_kib=7, max_memory_kib=8, page_kib=0)  # fmt: skip
    host = replace(plain, needs=needs)
    assert replace(asked, by_profile=False).for_host(host) == replace(asked, by_profile=False)
    assert asked.for_host(host) == PlacementRequest(
        "new", 6, 7, disk_bytes=7, bridges=frozenset({"a", "b"}), networks=frozenset({"c", "d"}),
        pools={"p": 1, "q": 5}, disks=(DiskFootprint(1), DiskFootprint(2)), by_profile=True,
        cpu_model="m",
        max_memory_kib=8, page_kib=0,
    )  # fmt: skip
    own = replace(asked, cpu_model="own", max_memory_kib=9, page_kib=2048)
    found = own.for_host(replace(plain, needs=Needs(cpu_model="m")))
    assert (found.vcpus, found.memory_kib, found.max_memory_kib) == (1, 2, 9)
    assert (found.cpu_model, found.page_kib) == ("own", 2048)


def test_a_guest_that_exists_is_asked_for_as_it_is():
    here = Host("hv1", 1, 1, arch="x86_64", types=("qemu",))
    bare = facts.of_guest(Guest("a", vcpus=1, memory_kib=2, state="running"), here)
    assert bare == PlacementRequest("a", 1, 2, hypervisor="qemu", arch="x86_64")
    unknown = facts.of_guest(Guest("a", vcpus=1, memory_kib=2), Host("hv1", 1, 1))
    assert unknown == PlacementRequest("a", 1, 2, hypervisor="kvm", stopped=True)
    more = {
        "type": "lxc", "arch": "i686", "bridges": frozenset("b"), "networks": frozenset("n"),
        "labels": {"l": 1}, "prefer": {"p": 1}, "group_policy": "gather", "max_memory_kib": 3,
        "page_kib": 0, "disks": (DiskFootprint(4, "/a"),), "cpu_model": "m",
    }  # fmt: skip
    found = facts.of_guest(Guest("a", "", "running", 1, 2, groups=("g",), **more), here)
    assert found == PlacementRequest(
        "a", 1, 2, hypervisor="lxc", arch="i686", bridges=frozenset({"b"}),
        networks=frozenset({"n"}), cpu_model="m", labels={"l": 1}, prefer={"p": 1}, groups=("g",),
        group_policy="gather", max_memory_kib=3, page_kib=0, disks=(DiskFootprint(4, "/a"),),
    )  # fmt: skip
    assert found.type == "lxc"


def test_storage_is_free_less_what_was_promised_and_what_stays_free():
    by = replace(PLAIN, reserved_disk_bytes=10, disk_ratio=2.0)
    host = Host(
        "hv1", 1, 1, disk_total_bytes=100, disk_free_bytes=50, disk_promised_bytes=5,
        stores={"/data": StorageSpace(100, 40, 3, "nas", 4)}, mounts={"/data": "/data"},
        pools={"p": StoragePool(9, 8, 7), "d": StoragePool(100, 40, 3, store="/data")},
    )  # fmt: skip
    assert host.free_disk_bytes(by) == (50 - 10) * 2 - 5
    assert host.free_store_bytes(by, host.pool_store("d")) == 40 * 2 - 3 - 4
    assert host.free_store_bytes(by, host.pool_store("p")) == 8 * 2 - 7
    assert set(host.storage) == {"images", "/data", "pool p"}
    assert (host.folder_store("/data/x"), host.folder_store("/x")) == ("/data", "images")
