"""A guest that was just given to high availability, and desired states of guests."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_desired, messages, transitions, view
from saltvirt.ha.model.registry import (
    FENCED,
    FENCING,
    MAINTENANCE,
    REST,
    RETURNING,
    STOPPED,
    SUSPECTED,
    UNKNOWN,
    UP,
    GuestLocation,
    HaGuestRecord,
    HostRecord,
)
from tests.unit.ha.model import made

FRESH = HaGuestRecord(changed=5)
ASSUMED = replace(FRESH, locations=(GuestLocation("h1", 1),), last="h1")


def new(there, of=FRESH, state=UP, wanted="h1", **beat):
    """A guest that is new, and was on h1 when it was given. there: what h1 says of it."""
    told = {"web1": messages.GuestStatus(3, there)} if there else {}
    return made.case(
        of, beats=[made.beat("h1", guests=told, **beat)], wanted=made.wanted(host=wanted),
        hosts={"h1": HostRecord(state, boot=1)},
    )  # fmt: skip


@pytest.mark.parametrize(
    "there, runs",
    [(messages.RUNNING, True), (messages.STARTING, True), (messages.INCOMING, True), (messages.OFF,
    False),
     (messages.STOPPED, False), (messages.CRASHED, False), (messages.FAILED, False), (None, False)],
)  # fmt: skip
def test_of_one_that_is_new_its_host_says_whether_it_runs(there, runs):
    case = new(there)
    assert (guest_desired.already_runs(case), guest_desired.does_not_run(case)) == (runs, not runs)


@pytest.mark.parametrize(
    "of, beat",
    [
        (FRESH, {"applied": 4}),  # by a registry that does not name it
        (HaGuestRecord(changed=0), {}),  # no registry names it yet
        (FRESH, {"boot": 2}),  # a start of the host that is not known yet
    ],
)
@pytest.mark.parametrize("there", [messages.RUNNING, None])
def test_what_is_no_answer_about_it_decides_nothing(there, of, beat):
    case = new(there, of, **beat)
    assert guest_desired.already_runs(case) is False
    assert guest_desired.does_not_run(case) is False
    assert transitions.next_guest_row(case) is None


def test_the_first_registry_that_can_name_one_is_enough():
    of = HaGuestRecord(changed=1)
    assert guest_desired.already_runs(new(messages.RUNNING, of, applied=1))
    assert guest_desired.does_not_run(new(None, of, applied=1))


def test_a_host_that_this_master_does_not_hear_decides_nothing():
    asked = made.wanted()
    unheard = replace(made.seen(guests={"web1": asked}), beats={})
    assert transitions.next_guest_row(made.case(FRESH, view=unheard)) is None


@pytest.mark.parametrize(
    "state, found",
    [(UP, "already_runs"), (MAINTENANCE, "already_runs"), (SUSPECTED, "host_is_silent"),
     (FENCED, "host_is_silent"), (FENCING, None), (UNKNOWN, None), (RETURNING, None), (REST, None)],
)  # fmt: skip
def test_only_a_host_that_is_heard_is_believed_and_a_silent_one_may_run_it(state, found):
    row = transitions.next_guest_row(new(messages.RUNNING, state=state))
    assert made.row_name(row) == found


@pytest.mark.parametrize("state", [SUSPECTED, FENCED])
def test_it_is_assumed_once_that_a_silent_host_may_run_it(state):
    assert guest_desired.host_is_silent(new(None, state=state)) is True
    assert (
        guest_desired.host_is_silent(new(None, replace(ASSUMED, locations=()), state=state))
        is False
    )


def test_one_that_is_on_no_host_is_placed_anywhere():
    case = new(None, wanted="")
    row = transitions.next_guest_row(case)
    assert row.condition is guest_desired.does_not_run
    assert row.apply(case, 9) == HaGuestRecord(
        "recovering", "its host reports that it does not run", changed=9
    )


@pytest.mark.parametrize(
    "there, of, state, after",
    [
        (messages.RUNNING, FRESH, UP, HaGuestRecord(
            "placed", "it already runs on its host", epoch=4, host="h1", boot=1, run=True,
            changed=9, locations=(GuestLocation("h1", 1),), last="h1")),
        (messages.OFF, FRESH, UP, HaGuestRecord(
            "recovering", "its host reports that it does not run", epoch=3, changed=9, last="h1")),
        (None, ASSUMED, UP, HaGuestRecord(
            "recovering", "its host reports that it does not run", epoch=0, changed=9, last="h1")),
        (None, FRESH, SUSPECTED, HaGuestRecord(
            "new", "its host is silent and may run it", changed=9,
            locations=(GuestLocation("h1", 1),), last="h1")),
    ],
)  # fmt: skip
def test_what_is_known_of_one_that_is_new_is_written_down(there, of, state, after):
    """Its epochs go on where its host has them: no start of before counts as one of these."""
    case = new(there, of, state)
    assert made.after(case) == after


@pytest.mark.parametrize(
    "wanted, ignored, unwanted, started",
    [(view.STARTED, False, False, True), (view.STOPPED, False, True, False),
     (view.IGNORED, True, False, False)],
)  # fmt: skip
def test_what_a_person_wants_of_it(wanted, ignored, unwanted, started):
    case = made.case(wanted=made.wanted(desired_state=wanted))
    assert guest_desired.is_ignored(case) is ignored
    assert guest_desired.is_managed_again(case) is not ignored
    assert guest_desired.is_to_stop(case) is unwanted
    assert guest_desired.is_to_start(case) is started


def test_one_that_is_no_longer_ignored_is_as_it_was():
    case = made.case(made.record(state="ignored"))
    after = made.record(state="recovering", reason="it is no longer ignored", changed=9)
    assert made.after(case) == after


def test_one_that_was_ignored_and_has_no_place_left_is_looked_for_where_it_is_now():
    """It was stopped before, or its host has booted: whoever started it since was a person."""
    old = made.record(
        state="ignored", epoch=7, locations=(), last_request=3, agent_silent_s=60, last="h2"
    )
    case = made.case(old)
    after = HaGuestRecord("new", "it is no longer ignored; its host is asked for its state",
                          epoch=7, changed=9, last_request=3, agent_silent_s=60)  # fmt: skip
    assert made.after(case) == after
    booted = made.case(made.record(state="ignored"), hosts={"h1": HostRecord(UP, boot=2)})
    assert transitions.next_guest_row(booted).condition is guest_desired.is_to_be_located
    there = new(messages.RUNNING, replace(after, changed=5))
    assert made.after(there).epoch == 8
    down = new(None, replace(after, changed=5))
    assert made.after(down).epoch == 7


MOVES = made.record(
    epoch=4, target="h2", target_boot=1, locations=(GuestLocation("h1", 1), GuestLocation("h2", 1)),
)  # fmt: skip
# as of a registry that no host acts by yet
DOWN = made.record(state=STOPPED, run=False, changed=6, locations=MOVES.locations)
H2_GONE = {"h2": HostRecord(FENCED, boot=1, dead_before=2)}


@pytest.mark.parametrize(
    "of, hosts, changes",
    [
        (made.record(epoch=4), {}, {}),
        (MOVES, {}, {"target": "", "epoch": 5}),  # the migration had the next epoch
        (MOVES, H2_GONE, {"target": "", "epoch": 5, "locations": (GuestLocation("h1", 1),)}),
    ],
)
def test_one_that_is_to_be_down_is_shut_down_where_it_is(of, hosts, changes):
    case = made.case(of, hosts=hosts, wanted=made.wanted(desired_state=view.STOPPED))
    after = {"run": False, "gentle": True, **changes}
    why = "its desired state is stopped"
    assert made.after(case) == replace(of, state=STOPPED, reason=why, changed=9, **after)


@pytest.mark.parametrize("asked", [{"taker": "h2"}, {"better": "h2"}])
def test_no_host_holds_one_that_is_to_be_down_for_its_lease(asked):
    """Whoever is asked for it, or has it, has a QEMU of the guest there that stands still."""
    of = made.record(state="blocked", **asked)
    case = made.case(of, wanted=made.wanted(desired_state=view.STOPPED))
    after = made.after(case)
    assert (after.taker, after.better) == ("", "")


@pytest.mark.parametrize("hosts, places", [
    ({}, (GuestLocation("h1", 1), GuestLocation("h2", 1))), (H2_GONE, (GuestLocation("h1", 1),)),
])  # fmt: skip
def test_one_that_is_to_be_started_gets_a_host_anew_and_all_its_tries(hosts, places):
    down = replace(DOWN, gentle=True, epoch=4)
    tried = {
        "restarts": 1, "relocates": 1, "failed": ("h1",), "origin": "h1", "turned": 3,
        "refused": (GuestLocation("h2", 1),),
    }  # fmt: skip
    case = made.case(replace(down, **tried), hosts=hosts)
    assert made.after(case) == replace(
        down,
        state="recovering",
        reason="its desired state is started",
        changed=9,
        host="",
        locations=places,
    )


@pytest.mark.parametrize("gone, left", [({}, False), (H2_GONE, True)])
def test_of_one_that_is_down_the_places_that_are_proven_to_be_over_go(gone, left):
    assert guest_desired.is_shut_off(made.case(DOWN, hosts=gone)) is left
