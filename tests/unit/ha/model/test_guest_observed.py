"""The leader's view of a guest: where a copy of it may run, and the state of its host."""

import pytest

from saltvirt.ha.model import guest_case, guest_failing, guest_failover, guest_migrating, messages
from saltvirt.ha.model.messages import GuestStatus, HostState
from saltvirt.ha.model.registry import (
    FENCED,
    IGNORED,
    MAINTENANCE,
    PLACED,
    UP,
    GuestLocation,
    HostRecord,
)
from saltvirt.ha.model.view import MIGRATE, RELOCATE, RelocationRequest
from tests.unit.ha.model import made

ALIVE = GuestStatus(1, messages.RUNNING)
INCOMING = GuestStatus(2, messages.INCOMING)
LEFT = {"host": "", "run": False, "locations": (GuestLocation("h2", 1),)}
MOVES = {
    "target": "h2", "target_boot": 1, "locations": (GuestLocation("h1", 1), GuestLocation("h2", 1)),
}  # fmt: skip


def of_h2(there=None, **changes):
    return made.beat("h2", guests={"web1": there} if there else {}, **changes)


@pytest.mark.parametrize("beat, cleared", [
    ({}, True),
    ({"there": GuestStatus(1, messages.OFF)}, True),
    ({"there": GuestStatus(1, messages.STOPPED)}, True),
    ({"there": ALIVE}, False),
    ({"boot": 2}, False),
    ({"applied": 3}, True),
    ({"applied": 2}, False),  # before it was told that the guest is no longer its own
])  # fmt: skip
@pytest.mark.parametrize("boot", [1, 0])
def test_a_place_that_the_guest_left_is_struck_off_by_its_hosts_word(beat, cleared, boot):
    left = {**LEFT, "locations": (GuestLocation("h2", boot),), "changed": 3}
    case = made.case(made.record(**left), beats=[of_h2(**beat)])
    assert case.locations == (() if cleared else case.record.locations)


@pytest.mark.parametrize("there, state, cleared", [
    (None, IGNORED, True), (GuestStatus(1, messages.STOPPED), IGNORED, True), (ALIVE, IGNORED,
    False),
    (None, PLACED, False),
])  # fmt: skip
def test_a_place_of_one_that_is_ignored_is_struck_off_when_a_person_moved_it(there, state, cleared):
    """``ha_ignore``, ``virt.migrate``, ``ha_ignore off=True``: that was refused."""
    left = {"host": "h2", "boot": 1, "run": True, "locations": LEFT["locations"], "state": state}
    case = made.case(made.record(**left), beats=[of_h2(there)])
    assert (case.locations == ()) is cleared


@pytest.mark.parametrize("committed, cleared", [(4, False), (5, True), (6, True)])
def test_that_word_counts_once_enough_hosts_keep_the_registry(committed, cleared):
    case = made.case(made.record(**LEFT), state=made.master(committed=committed))
    assert (case.locations == ()) is cleared


def test_a_host_of_which_nothing_is_heard_gives_nothing_back():
    case = made.case(made.record(**LEFT))
    del case.view.beats["h2"]
    assert case.locations == case.record.locations


def test_the_word_of_an_earlier_boot_says_nothing_of_a_later_one():
    case = made.case(made.record(**{**LEFT, "locations": (GuestLocation("h2", 2),)}))
    assert case.locations == case.record.locations


@pytest.mark.parametrize("boot, host, cleared", [
    (1, HostRecord(UP, boot=1), False),
    (1, HostRecord(UP, boot=2), True),
    (0, HostRecord(UP, boot=1), False),
    (1, HostRecord(FENCED, boot=1, dead_before=1), False),
    (1, HostRecord(FENCED, boot=1, dead_before=2), True),
    (0, HostRecord(FENCED, boot=1, dead_before=2), True),
])  # fmt: skip
def test_a_place_is_struck_off_when_its_host_is_proven_to_be_gone_or_has_booted_again(
    boot, host, cleared
):
    left = {**LEFT, "locations": (GuestLocation("h2", boot),)}
    case = made.case(made.record(**left), beats=[of_h2(ALIVE)], hosts={"h2": host})
    assert (case.locations == ()) is cleared


@pytest.mark.parametrize("pledge, cleared", [
    (HostState(boot=1, phase=messages.SHUT_DOWN), True),
    (HostState(boot=1, phase=messages.SHUT_DOWN, freeze=True), False),
    (HostState(boot=2, phase=messages.SHUT_DOWN), False),
    (HostState(boot=1, phase=messages.LEAVING), False),
])  # fmt: skip
def test_a_place_is_struck_off_when_its_host_said_that_none_of_its_guests_will_run(pledge, cleared):
    case = made.case(pledges={"h1": pledge})
    assert (case.locations == ()) is cleared


@pytest.mark.parametrize("changes, kept", [
    ({"host": "h2"}, True),
    ({"host": "h2", "boot": 2}, False),
    ({"host": "h2", "run": False}, False),
    ({"host": "h1", "boot": 1}, False),
    ({"host": "h1", "target": "h2", "target_boot": 1}, True),
    ({"host": "h1", "target": "h2", "target_boot": 2}, False),
    ({"host": "h1", "target": "h3", "target_boot": 1}, False),
])  # fmt: skip
def test_a_place_to_which_the_guest_is_to_come_is_not_given_back_before_it_came(changes, kept):
    case = made.case(made.record(**{**changes, "locations": LEFT["locations"]}), there=None)
    assert bool(case.locations) is kept


@pytest.mark.parametrize("places, held", [
    ((GuestLocation("h1", 1),), True),
    ((GuestLocation("h2", 0), GuestLocation("h1", 1)), True),
    ((GuestLocation("h2", 0),), False),
    ((), False),
])  # fmt: skip
def test_a_guest_is_held_while_it_may_run_at_its_host(places, held):
    assert made.case(made.record(locations=places), beats=[of_h2(ALIVE)]).is_held is held


@pytest.mark.parametrize("phase, freeze, left", [
    (messages.WORKING, False, False),
    (messages.RESTING, False, False),
    (messages.LEAVING, False, True),
    (messages.LEAVING, True, False),
    (messages.SHUT_DOWN, False, True),
    (messages.SHUT_DOWN, True, False),
])  # fmt: skip
def test_a_guest_is_left_by_a_host_that_wants_to_be_rid_of_it(phase, freeze, left):
    beat = made.beat(guests={"web1": ALIVE}, phase=phase, freeze=freeze)
    assert guest_failover.host_shuts_down(made.case(beats=[beat])) is left


@pytest.mark.parametrize("condition", [
    guest_failover.host_shuts_down, guest_failover.has_no_storage, guest_failing.may_restart,
    guest_migrating.is_to_migrate,
])  # fmt: skip
def test_a_host_that_is_not_heard_in_the_boot_of_the_guest_wants_nothing(condition):
    beat = made.beat(phase=messages.LEAVING, live=True, storage_silent_s=60)
    case = made.case(made.record(boot=2), beats=[beat], hosts={"h1": HostRecord(MAINTENANCE)})
    assert condition(case) is False


@pytest.mark.parametrize("silent_s, lost", [(None, False), (19.9, False), (20, True), (60, True)])
def test_a_host_misses_its_storage_when_that_is_silent_for_so_long(silent_s, lost):
    beat = made.beat(guests={"web1": ALIVE}, storage_silent_s=silent_s)
    assert guest_failover.has_no_storage(made.case(beats=[beat])) is lost


@pytest.mark.parametrize("beats, h2, comes", [
    ([of_h2(INCOMING)], {}, True),
    ([of_h2(GuestStatus(2, messages.RUNNING))], {}, True),
    ([of_h2(GuestStatus(2, messages.CRASHED))], {}, False),
    ([of_h2()], {}, False),
    ([of_h2(INCOMING, boot=2)], {}, False),
    ([of_h2(INCOMING)], {"dead_before": 2}, False),
])  # fmt: skip
def test_a_guest_whose_old_host_is_gone_is_lost_unless_its_target_has_it(beats, h2, comes):
    hosts = {"h1": HostRecord(FENCED, boot=1, dead_before=2), "h2": HostRecord(UP, boot=1, **h2)}
    case = made.case(made.record(**MOVES), beats=beats, hosts=hosts)
    assert guest_failover.has_lost_its_host(case) is not comes


@pytest.mark.parametrize("wish, host, followed", [
    (None, {}, False),
    (RelocationRequest(5, RELOCATE, "h2"), {}, True),
    (RelocationRequest(4, RELOCATE, "h2"), {}, False),
    (RelocationRequest(3, RELOCATE, "h2"), {}, False),
    (RelocationRequest(5, MIGRATE, "h2"), {}, False),
    (RelocationRequest(5, RELOCATE, "h2"), {"state": MAINTENANCE}, False),
])  # fmt: skip
def test_a_persons_wish_is_followed_once_where_its_host_takes_guests(wish, host, followed):
    hosts = {"h2": HostRecord(**{"state": UP, "boot": 1, **host})}
    view = made.seen(guests={"web1": made.wanted()}, relocations={"web1": wish} if wish else {})
    case = made.case(made.record(last_request=4), hosts=hosts, view=view)
    assert guest_migrating.is_to_relocate(case) is followed


@pytest.mark.parametrize("changes, last", [({}, 1), (MOVES, 2)])
def test_a_migration_has_the_epoch_after_the_records(changes, last):
    assert guest_case.last_epoch(made.record(**changes)) == last
