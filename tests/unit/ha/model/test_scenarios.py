"""The decisions of high availability: docs/explanation/ha-design.md."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import (
    decide,
    guest_failover,
    guest_migrating,
    messages,
    registry,
    transitions,
    view,
)
from saltvirt.ha.model.guest_case import GuestCase
from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.registry import HostRecord, Registry
from saltvirt.placement import facts as placement_facts
from tests.ha import mutants, random, simulate
from tests.lab.paths import REPOSITORY

# a few of what tests/functional/ha/test_ha_scenarios.py runs
SCENARIOS = ("disarm-while-fencing", "guest-crashes", "maintenance-on", "power-cut-with-bmc")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_as_is_expected(name):
    path = REPOSITORY / f"tests/ha/scenarios/{name}.yaml"
    found = simulate.outcome(path.read_text(encoding="utf-8"))
    assert (found["violations"], found["unexpected"]) == ([], [])


def test_the_same_seed_draws_the_same_cloud():
    assert random.draw(7) == random.draw(7) != random.draw(8)


def test_every_condition_of_safety_can_be_taken_away():
    names = {line.split("`")[1] for line in _conditions()}
    assert names == set(mutants.WITHOUT)


def _conditions():
    text = (REPOSITORY / "docs/explanation/ha-design.md").read_text(encoding="utf-8")
    table = text.split("<!-- conditions -->")[1].split("<!-- end of conditions -->")[0]
    return [line for line in table.splitlines() if line.startswith("- `")]


def test_hosts_come_and_go_one_by_one_so_that_any_two_majorities_meet():
    few, many = ("h1", "h2", "h3"), ("h1", "h3", "h4", "h5", "h6")
    for before, wanted in ((few, many), (many, few), ((), few), (few, ("h4",)), (few, ())):
        members = before
        for _ in range(10):
            after = decide._change_member(members, wanted)
            assert len(set(after) ^ set(members)) == (set(members) != set(wanted))
            members = after
        assert set(members) == set(wanted)


@pytest.mark.parametrize("armed, row", [(True, guest_failover.host_shuts_down), (False, None)])
def test_a_guest_is_taken_from_a_host_that_shuts_down_only_while_it_is_armed(armed, row):
    case = _case(False, RUNS)
    there = {"web1": messages.GuestStatus(4, messages.RUNNING)}
    going = messages.Heartbeat("h3", 1, 2, guests=there, phase=messages.LEAVING)
    case.view.beats["h3"] = messages.ReceivedHeartbeat(going, 1000)
    found = transitions.next_guest_row(replace(case, registry=replace(case.registry, armed=armed)))
    assert (found.condition if found else None) == row


BACK = {"h1": 3, "h2": 2, "h3": 1}


def _case(wanted, record, ran_s=0, starting=0):
    """A guest that runs on h3, and likes h1 and h2 better; what the leader sees at 1000 s."""
    there = {"web1": messages.GuestStatus(record.epoch, messages.RUNNING)}
    beats = {
        host: messages.ReceivedHeartbeat(
            messages.Heartbeat(host, 1, 1, guests=there if host == "h3" else {}), 1000
        )
        for host in BACK
    }
    hosts = {host: HostRecord("up", boot=1) for host in BACK}
    known = Registry(version=9, members=tuple(BACK), hosts=hosts, guests={"web1": record})
    rooms = {host: placement_facts.Host(host, 8, 8 << 20, types=("kvm",)) for host in BACK}
    guest = view.GuestConfig("web1", "h3", failback=wanted)
    rule = view.GuestRule(("web1",), hosts=BACK, strict=False)
    seen = view.View(
        ("m",), tuple(BACK), beats, placement_hosts=rooms, guests={"web1": guest}, rules=(rule,)
    )
    state = replace(view.initial_state("m", view.SavedMasterState(registry=known), 0),
                    ran_s={"web1": (record.epoch, ran_s)}, committed=9)  # fmt: skip
    room = HostCapacity(seen, known, 1000)
    room.starting["h1"] = starting
    return GuestCase("web1", record, guest, known, state, seen, room, 1000)


RUNS = registry.HaGuestRecord("placed", epoch=4, host="h3", boot=1, run=True, changed=5,
                            locations=(registry.GuestLocation("h3", 1),))  # fmt: skip


@pytest.mark.parametrize(
    "wanted, live, anew", [(True, "h1", ""), ("restart", "", "h1"), (False, "", "")]
)
def test_a_guest_goes_back_as_it_is_wanted(wanted, live, anew):
    case = _case(wanted, RUNS)
    assert (guest_migrating.goal(case), guest_migrating.back(case)) == (live, anew)


def test_none_is_stopped_for_a_host_where_as_many_start_as_may():
    assert guest_migrating.back(_case("restart", RUNS, starting=4)) == ""


@pytest.mark.parametrize("boot, host", [(1, "h2"), (0, "h1")])
def test_a_host_where_it_did_not_start_is_passed_over_until_it_has_booted_anew(boot, host):
    refused = replace(RUNS, refused=(registry.GuestLocation("h1", boot),))
    assert guest_migrating.back(_case("restart", refused)) == host


@pytest.mark.parametrize(
    "turned, ran_s, waits",
    [(0, 1000, False), (1, 991, True), (1, 990, False), (3, 961, True), (3, 960, False),
     (7, 401, True), (7, 400, False), (10**6, 400, False)],
)  # fmt: skip
def test_after_migrations_that_failed_it_waits_longer_and_longer_to_an_end(turned, ran_s, waits):
    case = _case(True, replace(RUNS, turned=turned), ran_s)
    assert guest_migrating.goal(case) == ("" if waits else "h1")


def test_from_a_host_that_is_to_be_empty_it_never_waits_for_long():
    case = _case(True, replace(RUNS, turned=50), 970)
    hosts = {**case.registry.hosts, "h3": HostRecord("maintenance", boot=1)}
    registry_now = replace(case.registry, hosts=hosts)
    assert guest_migrating.goal(replace(case, registry=registry_now)) == "h1"
    case = _case(True, replace(RUNS, turned=50), 971)
    assert guest_migrating.goal(replace(case, registry=registry_now)) == ""


def test_one_that_does_not_start_where_it_went_back_runs_again_where_it_ran():
    went = replace(RUNS, state="recovering", host="h1", epoch=5, better="h1", origin="h3",
                   locations=(registry.GuestLocation("h1", 1),))  # fmt: skip
    case = _case("restart", went)
    there = {"web1": messages.GuestStatus(5, messages.FAILED)}
    case.view.beats["h1"] = messages.ReceivedHeartbeat(
        messages.Heartbeat("h1", 1, 1, guests=there), 1000
    )
    row = transitions.next_guest_row(case)
    assert row is not None and row.condition is guest_migrating.failed_on_better_host
    done = row.apply(case, 10)
    assert (done.better, done.origin, done.host, done.run) == ("h3", "", "", False)
    assert (done.refused, done.restarts, done.relocates) == (
        (registry.GuestLocation("h1", 1),), 0, 0)  # fmt: skip
    assert done.reason == "it failed: it did not start; it is started on h3 again"
