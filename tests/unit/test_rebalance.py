from dataclasses import replace

import pytest

from saltvirt.placement import policy, rebalance
from saltvirt.placement.facts import Guest, Host
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


def test_a_small_difference_is_not_worth_a_move():
    assert rebalance.plan([host("a", 2, 1), host("b", 2)], PLAIN) == []


def test_a_target_that_cannot_take_the_guest_is_no_target():
    small = replace(host("b"), memory_kib=2 * GIB_KIB)
    assert rebalance.plan([host("a", 4, 4), small], PLAIN) == []
