"""Guests and hosts that a decision may skip: each condition by itself."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import idle, messages, registry
from saltvirt.ha.model.messages import GuestStatus, HostState
from saltvirt.ha.model.registry import RECOVERING, UP, GuestLocation, HostRecord
from saltvirt.ha.model.view import (
    IGNORED,
    STOPPED,
    GuestRule,
    IdleGuests,
    RelocationRequest,
    SavedMasterState,
)
from tests.unit.ha.model import made
from tests.unit.ha.model.made import NOW_S, POLICY, RUNS

# the registry knows of it: it was new in version 1
RECORD = made.record(changed=1)


def grouped(of=RECORD, wanted=None):
    """Of web1, and of web2, which is wanted and not recorded yet."""
    known = made.registry({"web1": of})
    seen = made.seen(guests={"web1": wanted or made.wanted(), "web2": made.wanted("web2")})
    return idle.grouped(IdleGuests(), known, seen)


# -- guests of which nothing is under way ----------------------------------------------------------


def test_a_guest_that_is_placed_goes_with_its_host_and_a_new_one_is_looked_at():
    found = grouped()
    assert found.by_host == {"h1": ["web1"]} and found.loud == ("web2",)


def test_guests_of_one_host_go_together():
    known = made.registry({"web1": RECORD, "web2": RECORD, "db1": replace(RECORD, host="h2")})
    seen = made.seen(guests={name: made.wanted(name) for name in known.guests})
    found = idle.grouped(IdleGuests(), known, seen)
    assert found.by_host == {"h1": ["web1", "web2"], "h2": ["db1"]} and found.loud == ()


@pytest.mark.parametrize(
    "change",
    [
        {"state": RECOVERING}, {"target": "h2"}, {"home": "h2"}, {"better": "h2"},
        {"restarts": 1}, {"relocates": 1}, {"failed": ("h2",)},
        {"locations": ()}, {"locations": (GuestLocation("h1", 1), GuestLocation("h2", 1))},
        {"changed": 0}, {"agent_silent_s": 60},
    ],
)  # fmt: skip
def test_one_of_which_something_is_under_way_is_looked_at(change):
    found = grouped(replace(RECORD, **change))
    assert found.by_host == {} and found.loud == ("web1", "web2")


@pytest.mark.parametrize(
    "change", [{"desired_state": STOPPED}, {"desired_state": IGNORED}, {"agent_silent_s": 60}]
)
def test_one_that_a_person_wants_otherwise_is_looked_at(change):
    assert "web1" in grouped(wanted=made.wanted(**change)).loud


def test_one_that_is_recorded_as_it_is_wanted_is_not():
    of, wanted = replace(RECORD, agent_silent_s=60), made.wanted(agent_silent_s=60)
    assert "web1" not in grouped(of, wanted).loud


@pytest.mark.parametrize(
    "records, wanted, same",
    [(True, True, True), (False, True, False), (True, False, False), (False, False, False)],
)
def test_what_is_remembered_holds_for_the_very_records_and_wishes(records, wanted, same):
    known, seen = made.registry({"web1": RECORD}), made.seen(guests={"web1": made.wanted()})
    before = idle.grouped(IdleGuests(), known, seen)
    known = known if records else replace(known, guests=dict(known.guests))
    seen = seen if wanted else replace(seen, guests=dict(seen.guests))
    found = idle.grouped(before, known, seen)
    assert (found is before) is same
    assert found.records is known.guests and found.configs is seen.guests


# -- guests to be looked at ------------------------------------------------------------------------


def looked_at(told=None, before=None, hosts=None, silent=False, of=RECORD, **says):
    """(what is remembered, the names) of web1 and web2 of h1. told: the guests of its beat; says:
    the rest of it; before: what is remembered of h1."""
    known = made.registry({"web1": of, "web2": RECORD}, hosts)
    guests = {name: made.wanted(name) for name in known.guests}
    told = {"web1": RUNS, "web2": RUNS} if told is None else told
    seen = made.seen([made.beat(guests=told, **says)], guests=guests)
    if silent:
        seen = replace(seen, beats={})
    found = IdleGuests(known.guests, guests, {"h1": ["web1", "web2"]}, (), before or {})
    return idle.select(found, known, seen)


BOTH = {"web1", "web2"}


def test_guests_that_run_as_they_are_to_are_passed_over_and_it_is_remembered_why():
    told = {"web1": RUNS, "web2": RUNS}
    found, names = looked_at(told)
    assert names == set()
    boot, there = found.statuses["h1"]
    assert boot == 1 and there is told


@pytest.mark.parametrize(
    "there",
    [
        None, GuestStatus(1, messages.STARTING), GuestStatus(1, messages.CRASHED),
        GuestStatus(0, messages.RUNNING), GuestStatus(2, messages.RUNNING),
        replace(RUNS, trouble=messages.FULL), replace(RUNS, resets=1),
    ],
)  # fmt: skip
def test_one_that_does_not_run_well_is_looked_at_each_time(there):
    told = {"web2": RUNS, **({"web1": there} if there else {})}
    found, names = looked_at(told)
    assert names == {"web1"} and found.statuses == {}


def test_one_that_is_to_run_in_another_boot_is_looked_at():
    assert looked_at(of=replace(RECORD, boot=2))[1] == {"web1"}


@pytest.mark.parametrize(
    "case",
    [
        {"silent": True},
        {"hosts": {"h1": HostRecord(registry.SUSPECTED, boot=1)}},
        {"hosts": {"h1": HostRecord(UP, boot=2)}},
        {"phase": messages.LEAVING},
        {"storage_silent_s": POLICY.storage_lost_s},
    ],
)
def test_all_guests_of_a_host_with_which_something_is_the_matter_are_looked_at(case):
    found, names = looked_at(before={"h1": (1, {})}, **case)
    assert names == BOTH and found.statuses == {}


@pytest.mark.parametrize("silent_s, names", [(None, set()), (0, set()), (19.9, set()), (20, BOTH)])
def test_a_host_reaches_its_storage_by_its_own_word(silent_s, names):
    assert looked_at(storage_silent_s=silent_s)[1] == names


DOWN = {"web1": GuestStatus(1, messages.CRASHED), "web2": RUNS}


@pytest.mark.parametrize(
    "before, names",
    [
        ((1, DOWN), set()),  # the very word that was found to be well
        ((1, dict(DOWN)), {"web1"}),
        ((2, DOWN), {"web1"}),
        ((0, None), {"web1"}),
    ],
)
def test_a_host_that_says_what_it_said_before_is_passed_over(before, names):
    found, looked = looked_at(DOWN, {"h1": before})
    assert looked == names
    assert found.statuses == ({} if names else {"h1": (1, DOWN)})


def test_those_of_other_hosts_are_looked_at_for_themselves():
    records = {"db1": replace(RECORD, host="h2"), "web1": RECORD, "web2": RECORD}
    known, guests = made.registry(records), {name: made.wanted(name) for name in records}
    seen = made.seen([made.beat(guests={"web1": RUNS, "web2": RUNS})], guests=guests)
    found, names = idle.select(idle.grouped(IdleGuests(), known, seen), known, seen)
    assert names == {"db1"} and set(found.statuses) == {"h1"}


@pytest.mark.parametrize(
    "view, names",
    [
        ({"rules": (GuestRule(("web1", "gone"), hosts={"h2": 1}),)}, {"web1"}),
        ({"rules": (GuestRule(("web1", "web2"), "anti_affinity"),)}, set()),
        ({"relocations": {"web1": RelocationRequest(1, "migrate", "h2"),
                          "gone": RelocationRequest(2, "migrate", "h2")}}, {"web1"}),
    ],
)  # fmt: skip
def test_those_that_may_be_better_elsewhere_are_looked_at_and_those_that_are_not_there_yet(
    view, names
):
    known = made.registry({"web1": RECORD})
    guests = {"web1": made.wanted(), "web2": made.wanted("web2")}
    seen = made.seen([made.beat(guests={"web1": RUNS})], guests=guests, **view)
    before = idle.grouped(IdleGuests(), known, seen)
    found, looked = idle.select(before, known, seen)
    assert looked == {"web2", *names}
    assert replace(found, statuses={}) == before and found.by_host is before.by_host


# -- hosts -----------------------------------------------------------------------------------------


HOST = HostRecord(UP, boot=1)


@pytest.mark.parametrize(
    "record, beat, pledge, maintenance, passed",
    [
        (HOST, {}, None, (), True),
        (HOST, {}, HostState(1, 7), ("h2",), True),
        (HOST, {"at_s": NOW_S - POLICY.suspect_s + 0.1}, None, (), True),
        (HostRecord(registry.RETURNING, boot=1), {}, None, (), False),
        (HostRecord(UP, boot=2), {}, None, (), False),
        (HOST, {"boot": 2}, None, (), False),
        (HOST, {"at_s": NOW_S - POLICY.suspect_s}, None, (), False),
        (HOST, None, None, (), False),
        (HOST, {}, HostState(1, 7, freeze=True), (), False),
        (HOST, {}, None, ("h1",), False),
    ],
)
def test_a_host_of_which_nothing_can_change_is_passed_over(
    record, beat, pledge, maintenance, passed
):
    beats = {} if beat is None else {"h1": made.beat(**beat)}
    seen = made.seen(maintenance=frozenset(maintenance))
    state = made.master(saved=SavedMasterState(host_states={"h1": pledge} if pledge else {}))
    assert idle.is_idle_host("h1", record, state, replace(seen, beats=beats), NOW_S) is passed
