import random
from dataclasses import replace

import pytest

from saltvirt.placement import policy, rebalance
from saltvirt.placement.facts import DiskFootprint, Guest, Host, StorageSpace
from tests.unit.placement import NOTHING_BESIDE

GIB_KIB = 1024**2
PLAIN = policy.from_config(NOTHING_BESIDE)


def host(name, *sizes, state="running"):
    guests = tuple(
        Guest(f"{name}-{i}", state=state, vcpus=1, memory_kib=size * GIB_KIB)
        for i, size in enumerate(sizes)
    )
    return Host(name, cpus=8, memory_kib=16 * GIB_KIB, guests=guests, types=("kvm",))


def test_an_even_cloud_is_left_alone():
    assert rebalance.plan([host("a", 4), host("b", 4)], PLAIN) == []
    assert rebalance.plan([host("a", 4)], PLAIN) == []


def test_each_move_is_simulated_before_the_next():
    moves = rebalance.plan([host("a", 4, 4, 4, 4), host("b")], PLAIN)
    assert [(m.source, m.target) for m in moves] == [("a", "b"), ("a", "b")]
    assert moves[0].after == moves[1].before
    assert moves[-1].after == pytest.approx(0)


def test_a_host_in_maintenance_and_stopped_guests_do_not_take_part():
    drained = replace(host("b"), maintenance="disks")
    assert rebalance.plan([host("a", 4, 4), drained], PLAIN) == []
    assert rebalance.plan([host("a", 4, 4, state="shutdown"), host("b")], PLAIN) == []


def test_one_that_is_to_stay_is_not_moved():
    hosts = [host("a", 4, 4, 4, 4), host("b")]
    stay = {"a-0", "a-1", "a-2"}
    assert {move.guest for move in rebalance.plan(hosts, PLAIN, pinned=stay)} == {"a-3"}
    assert rebalance.plan(hosts, PLAIN, pinned={*stay, "a-3"}) == []


def test_a_small_difference_is_not_worth_a_move():
    assert rebalance.plan([host("a", 2, 1), host("b", 2)], PLAIN) == []


def test_a_target_that_cannot_take_the_guest_is_no_target():
    small = replace(host("b"), memory_kib=2 * GIB_KIB)
    assert rebalance.plan([host("a", 4, 4), small], PLAIN) == []


def test_uneven_vcpus_alone_are_a_reason_to_move():
    many = [Guest(f"a-{i}", state="running", vcpus=8, memory_kib=1024) for i in range(4)]
    full = replace(host("a"), guests=tuple(many))
    assert [m.target for m in rebalance.plan([full, host("b")], PLAIN)] == ["b", "b"]


def test_hosts_of_different_size_are_even_when_the_same_part_of_each_is_promised():
    large = replace(host("b", *[4] * 8), cpus=32, memory_kib=64 * GIB_KIB)
    assert rebalance.plan([host("a", 8), large], PLAIN) == []


def test_a_host_that_keeps_all_memory_for_itself_gets_and_gives_nobody():
    closed = replace(host("b"), limits={"reserved_memory_kib": 16 * GIB_KIB})
    moves = rebalance.plan([host("a", 4, 4, 4, 4), closed, host("c")], PLAIN)
    assert {m.target for m in moves} == {"c"}


def test_a_cloud_that_is_all_in_maintenance_and_what_is_drained_already():
    drained = replace(host("a", 4, 4, 4, 4), maintenance="disks")
    assert rebalance.plan([drained], PLAIN) == []
    assert rebalance.plan([drained, host("b"), host("c")], PLAIN) == [], "evacuate moves these"


def test_no_more_moves_than_asked_for_and_none_at_the_threshold():
    hosts = [host("a", 4, 4, 4, 4), host("b")]
    assert len(rebalance.plan(hosts, PLAIN, max_moves=1)) == 1
    assert rebalance.plan(hosts, PLAIN, threshold=rebalance.score(hosts, PLAIN)) == []


def test_a_move_that_gains_too_little_is_not_made(monkeypatch):
    assert rebalance.plan([host("a", 8), host("b")], PLAIN) == [], "to and fro, for ever"
    hosts = [host("a", 4, 4), host("b")]
    gain = rebalance.score(hosts, PLAIN) - rebalance.score([host("a", 4), host("b", 4)], PLAIN)
    monkeypatch.setattr(rebalance, "LEAST_GAIN", gain)
    assert len(rebalance.plan(hosts, PLAIN)) == 1, "the least gain is enough"


def test_the_guest_that_is_named_is_the_one_that_moves():
    cloud = {one.name: one for one in (host("a", 4, 2), host("b"))}
    found = rebalance.apply_move(cloud, rebalance.RebalanceMove("a-1", "a", "b", 1.0, 0.0))
    assert [g.name for g in found["a"].guests] == ["a-0"]
    assert [(g.name, g.memory_kib) for g in found["b"].guests] == [("a-1", 2 * GIB_KIB)]


def test_of_guests_that_gain_the_same_the_one_with_the_least_disk_moves():
    """A guest of 4 TiB went, where one without disks gained the same."""
    big = Guest(
        "a-0", state="running", vcpus=1, memory_kib=4 * GIB_KIB, disks=(DiskFootprint(1 << 42),)
    )
    small = replace(big, name="a-9", disks=(DiskFootprint(1 << 30),))
    room = {
        "stores": {"/": StorageSpace(1 << 44, 1 << 44)},
        "mounts": {"/": "/"},
        "images_store": "/",
    }
    full, empty = replace(host("a"), guests=(big, small), **room), replace(host("b"), **room)
    assert [move.guest for move in rebalance.plan([full, empty], PLAIN)] == ["a-9"]
    served = replace(big, disks=(DiskFootprint(1 << 42, shared="nfs nas:/vm"),))
    assert rebalance._copied_bytes(served) == 0


def test_a_guest_with_less_to_copy_that_gains_too_little_ends_no_plan():
    """Its move was near the best one, and was chosen: the plan ended without any."""

    def guest(name, memory_mib, disk_bytes):
        disks = (DiskFootprint(disk_bytes),)
        return Guest(name, state="running", vcpus=1, memory_kib=memory_mib * 1024, disks=disks)

    room = {
        "stores": {"/": StorageSpace(1 << 44, 1 << 44)},
        "mounts": {"/": "/"},
        "images_store": "/",
    }
    guests = guest("a-0", 200, 1 << 42), guest("a-1", 100, 1 << 30), guest("a-2", 8192, 0)
    full, empty = replace(host("a"), guests=guests, **room), replace(host("b", 3, 3), **room)
    planned = rebalance.plan([full, empty], PLAIN, threshold=0.01, pinned={"a-2", "b-0", "b-1"})
    assert [move.guest for move in planned] == ["a-0"]


def test_no_guest_moves_twice_in_a_plan():
    rng = random.Random(7)
    for _ in range(60):
        cloud = [
            host(name, *(rng.randint(1, 5) for _ in range(rng.randint(0, 4)))) for name in "abcd"
        ]
        names = [move.guest for move in rebalance.plan(cloud, PLAIN, threshold=0)]
        assert len(names) == len({*names})
