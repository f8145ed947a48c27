"""The plan is pure; the operation runs in the lab."""

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("salt")

from saltvirt.operations import evacuate, moves
from saltvirt.placement import policy
from saltvirt.placement.facts import Guest, Host

GIB_KIB = 1024**2
PLAIN = policy.Policy(reserved_memory_kib=0, reserved_disk_bytes=0)


class Silent:
    def step(self, step, text, **data):
        pass


def host(name, *sizes):
    guests = tuple(
        Guest(f"{name}-{i}", state="running", vcpus=1, memory_kib=size * GIB_KIB)
        for i, size in enumerate(sizes)
    )
    return Host(name, cpus=8, memory_kib=8 * GIB_KIB, guests=guests, types=("kvm",))


def test_the_biggest_guest_is_placed_first_and_counts_for_the_next():
    targets, homeless = evacuate.plan([host("a", 2, 5), host("b"), host("c", 2)], "a", PLAIN)
    assert targets == {"a-1": "b", "a-0": "c"}
    assert homeless == {}


def test_who_finds_no_place_is_named_with_the_reasons():
    targets, homeless = evacuate.plan([host("a", 5, 5), host("b")], "a", PLAIN)
    assert list(targets.values()) == ["b"]
    assert "b: 5120 MiB of memory wanted" in homeless["a-1"]


def test_a_host_in_maintenance_takes_nobody():
    targets, homeless = evacuate.plan(
        [host("a", 1), replace(host("b"), maintenance="x")], "a", PLAIN
    )
    assert targets == {}
    assert "in maintenance: x" in homeless["a-0"]


def test_moves_carry_on_past_a_failure_and_end_with_what_is_left():
    from saltvirt.errors import MigrationFailed

    def migrate(guest, target):
        if guest == "b":
            raise MigrationFailed("b is on a CD")
        return target

    planned = [
        moves.Move(guest, "h0", host) for guest, host in (("a", "h1"), ("b", "h1"), ("c", "h2"))
    ]
    outcome = moves.run(planned, migrate, Silent())
    assert outcome.moved == {"a": "h1", "c": "h2"}
    assert outcome.text() == "2 moved, 1 left: b: b is on a CD"


def test_a_host_is_never_busier_than_its_limit_and_the_others_go_on_meanwhile():
    lock, busy, most = threading.Lock(), Counter(), Counter()
    planned = [moves.Move(f"g{i}", source, f"t{i % 3}") for i, source in enumerate("aaaaabbbbb")]
    by_guest = {move.guest: move for move in planned}

    def migrate(guest, target):
        hosts = (by_guest[guest].source, target, "all")
        with lock:
            busy.update(hosts)
            for host in hosts:
                most[host] = max(most[host], busy[host])
        time.sleep(0.02)
        with lock:
            busy.subtract(hosts)
        return target

    outcome = moves.run(planned, migrate, Silent(), (3, 2))
    assert len(outcome.moved) == 10
    assert most["all"] == 3
    assert max(most[host] for host in most if host != "all") == 2
