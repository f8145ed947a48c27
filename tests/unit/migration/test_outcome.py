"""Every combination of the states of two hosts."""

import itertools

import pytest

from saltvirt.migration import outcome as o

SIDES = [
    o.Side(o.ABSENT),
    o.Side(o.OFF),
    o.Side(o.RUNNING),
    o.Side(o.PAUSED),
    o.Side(o.PAUSED, is_waiting=True),
    o.Side(o.PAUSED, split=True),
    o.Side(o.RUNNING, split=True),
    o.Side(o.RUNNING, restarted=True),
    o.Side("crashed"),
    o.Side("in an unknown state"),
]
# was it active, was it running
WAS = ((True, True), (True, False), (False, False))


@pytest.mark.parametrize("here", SIDES, ids=str)
def test_no_living_guest_is_ever_ended(here):
    for there, was in itertools.product(SIDES, WAS):
        found = o.decide(here, there, *was)
        actions, pair = set(found.actions), (there, was)
        assert not (there.alive and o.END_TARGET in actions), pair
        assert not (here.alive and {o.END_SOURCE, o.FORGET_SOURCE} & actions), pair
        assert there.alive or not {o.END_SOURCE, o.FORGET_SOURCE} & actions, pair
        assert here.state != o.ABSENT or o.END_TARGET not in actions, pair
        assert there.state == o.ABSENT or o.RESUME_SOURCE not in actions, pair


def test_in_post_copy_neither_side_is_touched():
    pairs = [
        (here, there) for here, there in itertools.product(SIDES, SIDES)
        if here.split or (there.split and here.state != o.ABSENT)
    ]  # fmt: skip
    assert len(pairs) > 30
    for (here, there), was in itertools.product(pairs, WAS):
        found = o.decide(here, there, *was)
        assert (found.outcome, found.actions) == (o.UNDECIDED, ()), (here, there, was)
        assert "post-copy" in found.message, (here, there, was)


@pytest.mark.parametrize("here", SIDES, ids=str)
def test_disks_are_only_cleaned_where_the_guest_is_not(here):
    """MOVED removes the source's disks, UNDONE the target's."""
    gone = here.state == o.ABSENT
    for there, was in itertools.product(SIDES, WAS):
        found, pair = o.decide(here, there, *was), (there, was)
        if found.outcome == o.MOVED:
            assert there.alive or (there.state in (o.OFF, o.RUNNING) and gone), pair
        elif found.outcome == o.UNDONE:
            assert not gone and not there.alive, pair
        else:
            assert found.outcome == o.UNDECIDED and found.message, pair


@pytest.mark.parametrize(
    ("here", "there", "outcome", "actions"),
    [
        (o.Side(o.RUNNING), o.Side(o.ABSENT), o.UNDONE, ()),
        (o.Side(o.RUNNING), o.Side(o.PAUSED, True), o.UNDONE, (o.END_TARGET,)),
        (o.Side(o.PAUSED), o.Side(o.PAUSED, True), o.UNDONE, (o.END_TARGET,)),
        (o.Side(o.PAUSED, True), o.Side(o.ABSENT), o.UNDONE, (o.RESUME_SOURCE,)),
        (o.Side(o.PAUSED, True), o.Side(o.RUNNING), o.MOVED, (o.END_SOURCE, o.FORGET_SOURCE)),
        (o.Side(o.OFF), o.Side(o.RUNNING), o.MOVED, (o.FORGET_SOURCE,)),
        (o.Side(o.ABSENT), o.Side(o.RUNNING), o.MOVED, ()),
        (o.Side(o.RUNNING), o.Side(o.RUNNING), o.UNDECIDED, (o.PAUSE_TARGET,)),
        (o.Side(o.RUNNING, restarted=True), o.Side(o.RUNNING), o.UNDECIDED, (o.PAUSE_SOURCE,)),
        (o.Side(o.PAUSED, restarted=True), o.Side(o.RUNNING), o.UNDECIDED, (o.PAUSE_SOURCE,)),
        (o.Side(o.RUNNING, restarted=True), o.Side(o.PAUSED, True), o.UNDONE, (o.END_TARGET,)),
        (o.Side(o.PAUSED, True), o.Side(o.PAUSED, True), o.UNDECIDED, ()),
        (o.Side(o.ABSENT), o.Side(o.PAUSED, True), o.UNDECIDED, ()),
        (o.Side(o.ABSENT), o.Side(o.ABSENT), o.UNDECIDED, ()),
        (o.Side(o.OFF), o.Side(o.OFF), o.UNDECIDED, ()),
        (o.Side(o.ABSENT), o.Side(o.OFF), o.UNDECIDED, ()),
    ],
)
def test_a_running_guest(here, there, outcome, actions):
    found = o.decide(here, there, was_active=True, was_running=True)
    assert (found.outcome, found.actions) == (outcome, actions)


def test_a_stopped_guest_is_here_until_it_is_forgotten_here():
    off = o.Side(o.OFF)
    assert o.decide(off, off, False, False) == o.Resolution(o.UNDONE, (o.END_TARGET,))
    assert o.decide(o.Side(o.ABSENT), off, False, False) == o.Resolution(o.MOVED)
    assert o.decide(off, o.Side(o.ABSENT), False, False) == o.Resolution(o.UNDONE)


def test_a_guest_that_the_user_had_paused_is_not_resumed():
    assert o.decide(o.Side(o.PAUSED, True), o.Side(), True, False) == o.Resolution(o.UNDONE)


def test_post_copy_that_has_ended_is_a_move():
    """libvirt ended the source when the target had all of the memory."""
    there = o.Side(o.RUNNING, split=True)
    assert o.decide(o.Side(o.ABSENT), there, True, True) == o.Resolution(o.MOVED)
    failed = o.decide(o.Side(o.ABSENT), o.Side(o.PAUSED, split=True), True, True)
    assert "post-copy" in failed.message


@pytest.mark.parametrize("state", [o.RUNNING, o.PAUSED])
def test_a_part_of_a_guest_is_the_guest(state):
    """Who ends what never ran asks once more: a post-copy that has begun since is not ended."""
    assert o.Side(state, split=True).alive


def test_a_definition_that_the_source_never_kept_is_not_undefined():
    off, run = o.Side(o.OFF), o.Side(o.RUNNING)
    assert o.decide(off, run, True, True, source_persistent=False) == o.Resolution(o.MOVED)
    waits = o.Side(o.PAUSED, is_waiting=True)
    assert o.decide(waits, run, True, True, False) == o.Resolution(o.MOVED, (o.END_SOURCE,))


def test_what_is_not_decided_says_what_to_decide():
    waits, crashed = o.Side(o.PAUSED, is_waiting=True), o.Side("crashed")
    gone = o.decide(o.Side(o.ABSENT), waits, True, True)
    assert "virt.resume it there" in gone.message
    for here, there in ((waits, waits), (o.Side(o.ABSENT), crashed), (crashed, crashed)):
        found = o.decide(here, there, True, True)
        assert found.message.startswith(f"it is {here.state} here and {there.state} on the target")
    cold = o.decide(crashed, o.Side(o.OFF), False, False)
    assert (cold.outcome, cold.actions) == (o.UNDECIDED, ())
    assert cold.message.startswith("it is crashed here and shutdown on the target")


def test_a_guest_that_has_not_begun_on_the_target_is_not_taken_for_moved():
    waits = o.Side(o.RUNNING, is_waiting=True)
    found = o.decide(o.Side(o.ABSENT), waits, True, True)
    assert (found.outcome, found.actions) == (o.UNDECIDED, ())
    assert "virt.resume it there" in found.message
