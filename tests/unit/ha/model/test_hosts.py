"""The leader's decisions about hosts: each condition of the table on both sides of its limit, the
change of the record, and why nothing is done to a silent host."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import hosts, transitions
from saltvirt.ha.model.messages import OFF, FenceVote, HostState
from saltvirt.ha.model.registry import (
    FENCED,
    FENCING,
    IGNORED,
    MAINTENANCE,
    REST,
    RETURNING,
    STOPPED,
    SUSPECTED,
    UNKNOWN,
    UP,
    GuestLocation,
    HostRecord,
)
from saltvirt.ha.model.transitions import HostRow
from saltvirt.ha.model.view import FenceResult
from tests.unit.ha.model import made
from tests.unit.ha.model.made import NOW_S, POLICY, record

# in this version of the registry the others were asked to give h1 up
BALLOT = 4
SUSPECT_S = POLICY.suspect_s
ARMED = HostState(boot=2, armed=True, watchdog_s=10, terms=POLICY.terms(""))
FIRED_S = POLICY.must_have_fired_s(10)


def case(state=UP, beats=None, pledge=None, guests=None, known=None, led=None, **more):
    """The HostCase of h1, which is in boot 2 and was heard a second ago. beats: of a host, other
    than an idle one's; None: none. known: of the Registry; led: of the MasterState; more: boot and
    dead_before of its record, and what a master sees."""
    changes = {key: more.pop(key) for key in ("boot", "dead_before") if key in more}
    of = replace(HostRecord(state, "why", boot=2, ballot=BALLOT), **changes)
    registry = made.registry(guests, {"h1": of}, **(known or {}))
    beats = {"h1": made.beat(boot=2), **(beats or {})}
    sees = made.seen([one for one in beats.values() if one], **more)
    left = {name: one for name, one in sees.beats.items() if beats.get(name, one)}
    master = made.master(**(led or {}))
    pledges = {"h1": pledge} if pledge else {}
    master = replace(master, saved=replace(master.saved, registry=registry, host_states=pledges))
    return hosts.HostCase("h1", of, registry, master, replace(sees, beats=left), NOW_S)


def came(ago_s, boot=2, host="h1", **changes):
    """A beat, so long ago."""
    return made.beat(host, NOW_S - ago_s, boot=boot, **changes)


def miss(silent_s=SUSPECT_S, ago_s=1, peers=("h2", "h3")):
    """The beats of peers that have not heard h1 for so long."""
    return {name: came(ago_s, host=name, silent_s={"h1": silent_s}) for name in peers}


def promise(term=1, ballot=BALLOT, peers=("h2", "h3")):
    """The beats of peers that have promised not to acknowledge h1."""
    asked = FenceVote(2, term, ballot)
    return {name: made.beat(name, fence_votes={"h1": asked}) for name in peers}


SILENT = {"h1": None}
GONE = {**SILENT, **miss()}
MINE = {"web1": record("h1")}


# -- is it heard -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beat, gone, pledge, heard",
    [
        (came(SUSPECT_S - 0.1), 0, None, True),
        (came(SUSPECT_S), 0, None, False),
        (None, 0, None, False),
        (came(1), 2, None, True),
        (came(1), 3, None, False),
        (came(1), 0, HostState(2, freeze=True), False),
    ],
)
def test_a_host_is_heard_by_a_beat_of_late_of_a_boot_that_is_not_over(beat, gone, pledge, heard):
    host = case(beats={"h1": beat}, dead_before=gone, pledge=pledge)
    assert hosts.is_heard(host) is heard


@pytest.mark.parametrize(
    "beat, gone, booted",
    [
        (came(1, boot=3), 0, True),
        (came(1, boot=4), 0, True),
        (came(1, boot=2), 0, False),
        (came(SUSPECT_S - 0.1, boot=3), 0, True),
        (came(SUSPECT_S, boot=3), 0, False),
        (None, 0, False),
        (came(1, boot=5), 5, True),
        (came(1, boot=4), 5, False),
    ],
)
def test_a_host_has_booted_again_by_a_later_boot_that_is_not_over(beat, gone, booted):
    assert hosts.has_booted(case(beats={"h1": beat}, dead_before=gone)) is booted


@pytest.mark.parametrize(
    "beat_s, led_s, answered_s, silent",
    [
        (6, 100, None, True),
        (5.9, 100, None, False),
        (None, 6, None, True),
        (None, 5.9, None, False),
        (100, 5.9, None, False),
        (100, 100, 6, True),
        (100, 100, 5.9, False),
        (100, 5.9, 100, False),
        (5.9, 100, 100, False),
        (None, None, None, False),
        (100, None, 100, False),
    ],
)
def test_a_host_is_silent_when_nothing_came_for_so_long_since_the_lead_was_taken(
    beat_s, led_s, answered_s, silent
):
    host = case(
        beats={"h1": None if beat_s is None else came(beat_s)},
        led={"leading_s": None if led_s is None else NOW_S - led_s},
        answered_s={} if answered_s is None else {"h1": NOW_S - answered_s},
    )
    assert hosts.is_silent(host) is silent


@pytest.mark.parametrize(
    "boot, pledge, rests",
    [
        (2, HostState(2, freeze=True), True),
        (1, HostState(1, freeze=True), True),
        (2, HostState(2, freeze=False), False),
        (2, HostState(1, freeze=True), False),
        (2, HostState(3, freeze=True), False),
        (0, HostState(0, freeze=True), False),
        (2, None, False),
    ],
)
def test_a_host_rests_when_it_said_so_in_the_boot_that_is_known(boot, pledge, rests):
    assert hosts.rests(case(boot=boot, pledge=pledge)) is rests


# -- what persons want -----------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [True, False])
def test_a_host_is_to_be_empty_while_a_person_wants_it(marked):
    host = case(maintenance=frozenset({"h2", "h1"} if marked else {"h2"}))
    assert hosts.in_maintenance(host) is marked
    assert hosts.has_left_maintenance(host) is (not marked)


@pytest.mark.parametrize(
    "confirmed, beat, holds",
    [
        ({"h1": 2}, None, True),
        ({"h1": 3}, None, True),
        ({"h1": 1}, None, False),
        ({"h2": 2}, None, False),
        ({"h1": 2}, came(1), False),
    ],
)
def test_a_persons_word_holds_of_a_silent_host_in_the_boot_it_was_said_of(confirmed, beat, holds):
    assert hosts.is_confirmed(case(beats={"h1": beat}, confirmed=confirmed)) is holds


@pytest.mark.parametrize("armed", [True, False])
def test_high_availability_is_disarmed(armed):
    assert hosts.is_disarmed(case(known={"armed": armed})) is (not armed)


# -- is it given up --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beats, gone",
    [
        (miss(SUSPECT_S), True),
        (miss(SUSPECT_S - 0.1), False),
        (miss(ago_s=SUSPECT_S - 0.1), True),
        (miss(ago_s=SUSPECT_S), False),
        (miss(peers=["h2"]), False),
        (miss(peers=["h1", "h2"]), False),  # itself it cannot miss
        ({}, False),
    ],
)
def test_a_majority_misses_a_host_when_so_many_others_say_so_of_late(beats, gone):
    host = case(FENCING, beats, guests=MINE)
    assert hosts.is_heard_by_others(host) is (not gone)
    assert hosts.is_to_be_fenced(host) is gone


NO_MAJORITY = "no majority of the hosts reports it as silent"
NO_GUEST = "it runs no guests of high availability"
LATELY = {"h2": NOW_S, "h3": NOW_S}


@pytest.mark.parametrize(
    "guests, changes, why",
    [
        (MINE, {}, ""),
        ({}, {}, NO_GUEST),
        ({"web1": record("h2")}, {}, NO_GUEST),
        ({"web1": record("h1", state=IGNORED)}, {}, NO_GUEST),
        ({"web1": record("h1", locations=())}, {}, NO_GUEST),
        ({"db1": record("h2"), **MINE}, {}, ""),
        ({"web1": record("h1", state=STOPPED)}, {}, ""),
        # one that migrates away, one that is to go elsewhere
        (
            {"web1": record("h2", locations=(GuestLocation("h2", 1), GuestLocation("h1", 2)))},
            {},
            "",
        ),
        (MINE, {"known": {"armed": False}}, "high availability is disarmed"),
        (MINE, {"beats": SILENT}, NO_MAJORITY),
        (
            MINE,
            {"led": {"fenced_s": LATELY}},
            "2 other hosts were fenced within 600 s (max_fences)",
        ),
        (MINE, {"led": {"fenced_s": {"h2": NOW_S}}}, ""),
        (MINE, {"led": {"fenced_s": {**LATELY, "h1": NOW_S}}}, ""),
    ],
)
def test_a_silent_host_is_left_alone_for_a_reason(guests, changes, why):
    host = case(SUSPECTED, **{"beats": GONE, **changes}, guests=guests)
    assert hosts.unfenced_reason(host) == hosts.stuck_reason(host) == why
    assert hosts.is_to_be_fenced(host) is (why == "")


@pytest.mark.parametrize("state", [UNKNOWN, UP, MAINTENANCE, REST, FENCED, RETURNING])
def test_only_of_a_host_that_is_suspected_or_given_up_there_is_such_a_reason(state):
    assert hosts.stuck_reason(case(state, SILENT)) == ""
    assert hosts.stuck_reason(case(state, {**SILENT, **promise()})) == ""


@pytest.mark.parametrize(
    "beats, promised",
    [
        (promise(), True),
        (promise(peers=["h2"]), False),
        (promise(peers=["h1", "h2"]), False),  # its own is none
        (promise(term=2), False),
        (promise(ballot=BALLOT - 1), False),
        ({}, False),
    ],
)
def test_a_majority_has_promised_by_the_words_of_others_about_this_question(beats, promised):
    assert case(FENCING, beats).has_votes is promised


# -- proofs, and what is no longer to be hoped for -------------------------------------------------


@pytest.mark.parametrize(
    "seen, proves",
    [
        ({"h1": FenceResult("1.4.0", "off")}, True),
        ({"h1": FenceResult("1.4.7", "off")}, True),
        ({"h1": FenceResult("1.4.0", "on")}, False),
        ({"h1": FenceResult("1.3.0", "off")}, False),
        ({"h1": FenceResult("2.4.0", "off")}, False),
        ({"h2": FenceResult("1.4.0", "off")}, False),
    ],
)
def test_a_host_is_off_by_a_fence_that_was_run_for_this_question(seen, proves):
    assert hosts.is_off(case(FENCING, fences=seen)) is proves


@pytest.mark.parametrize(
    "since, pledge, fired",
    [
        ({"h1": (BALLOT, NOW_S - FIRED_S)}, ARMED, True),
        ({"h1": (BALLOT, NOW_S - FIRED_S + 0.1)}, ARMED, False),
        ({"h1": (BALLOT - 1, NOW_S - FIRED_S)}, ARMED, False),
        ({"h2": (BALLOT, NOW_S - FIRED_S)}, ARMED, False),
        ({"h1": (BALLOT, NOW_S - FIRED_S)}, replace(ARMED, boot=3), False),
        ({"h1": (BALLOT, NOW_S - FIRED_S)}, None, False),
    ],
)
def test_a_watchdog_has_fired_so_long_after_the_promises_of_this_question(since, pledge, fired):
    assert hosts.watchdog_fired(case(FENCING, pledge=pledge, led={"voted_s": since})) is fired


NO_FENCE = "it has no fence, and its watchdog was not armed"
FENCES = {"fence_levels": {"h1": 1}}


@pytest.mark.parametrize(
    "beats, pledge, sees, why",
    [
        (promise(), None, {}, NO_FENCE),
        (promise(), replace(ARMED, armed=False), {}, NO_FENCE),
        (promise(), replace(ARMED, boot=1), {}, NO_FENCE),
        (promise(), ARMED, {}, ""),
        ({}, None, {}, ""),
        (promise(), None, {"fence_levels": {"h1": 0, "h2": 1}}, NO_FENCE),
        (promise(), None, FENCES, ""),
        (promise(), None, {**FENCES, "fences": {"h2": FenceResult("1.4.0", "on")}}, ""),
        # that it failed before says nothing of this time
        (promise(), None, {**FENCES, "fences": {"h1": FenceResult("1.3.0", "on")}}, ""),
        (
            promise(), None, {**FENCES, "fences": {"h1": FenceResult("1.4.0", "timed out")}},
            "the result of fencing it is timed out, and its watchdog was not armed",
        ),
        (promise(), ARMED, {**FENCES, "fences": {"h1": FenceResult("1.4.0", "on")}}, ""),
    ],
)  # fmt: skip
def test_no_proof_is_to_be_expected_where_neither_a_fence_nor_a_watchdog_gives_it(
    beats, pledge, sees, why
):
    assert hosts.stuck_reason(case(FENCING, beats, pledge, **sees)) == why


# -- one that comes back ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guest, clean",
    [
        (record("h1"), True),
        (record(""), True),
        (record("h2"), False),
        (record("h2", target="h1"), True),
        (record("h2", target="h3"), False),
        (record("h2", state=IGNORED), True),
        (None, True),
    ],
)
def test_a_host_is_clean_without_guests_that_live_elsewhere(guest, clean):
    beats = {"h1": came(1, guests={"web1": made.GuestStatus(1, OFF)}, applied=BALLOT)}
    guests = {"db1": record("h2"), **({"web1": guest} if guest else {})}
    assert hosts.is_clean(case(RETURNING, beats, guests=guests)) is clean


@pytest.mark.parametrize(
    "beat, gone, clean",
    [
        (came(1, applied=BALLOT), 2, True),
        (came(1, applied=BALLOT, boot=1), 0, False),
        (came(1, applied=BALLOT, boot=3), 0, False),
        (came(1, applied=BALLOT), 3, False),
        # it may not know yet that a guest was elsewhere meanwhile
        (came(1, applied=BALLOT - 1), 2, False),
        (None, 0, False),
    ],
)
def test_a_host_is_clean_by_its_word_in_the_boot_that_is_known(beat, gone, clean):
    assert hosts.is_clean(case(RETURNING, {"h1": beat}, dead_before=gone)) is clean


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state, changes, row",
    [
        (UP, {}, None),
        (UP, {"maintenance": frozenset({"h1"})}, ("in_maintenance", MAINTENANCE)),
        (UP, {"beats": SILENT, "maintenance": frozenset({"h1"})}, ("is_silent", SUSPECTED)),
        (UP, {"beats": SILENT, "pledge": HostState(2, freeze=True)}, ("rests", REST)),
        (FENCING, {"beats": {"h1": came(1, boot=3)}}, ("has_booted", RETURNING)),
    ],
)
def test_of_the_rows_of_its_state_the_first_that_holds_is_taken(state, changes, row):
    found = transitions.next_host_row(case(state, **changes))
    assert (found and (made.row_name(found), found.to)) == row


@pytest.mark.parametrize(
    "do, gone, changed",
    [
        ("unchanged", 1, {}),
        ("know", 1, {"boot": 3, "ballot": 9}),
        ("ask_votes", 1, {"ballot": 9}),
        ("release", 1, {"ballot": 0}),
        ("give_up", 1, {"ballot": 0, "dead_before": 3}),
        ("give_up", 7, {"ballot": 0, "dead_before": 7}),
    ],
)
def test_a_row_changes_the_state_and_says_why(do, gone, changed):
    host = case(SUSPECTED, {"h1": came(1, boot=3)}, dead_before=gone)
    host = replace(host, record=replace(host.record, stuck=True))
    expected = replace(HostRecord(FENCED, "the row's", 2, gone, BALLOT), **changed)
    row = HostRow((SUSPECTED,), hosts.rests, FENCED, "the row's", getattr(hosts, do))
    assert row.apply(host, 9) == expected
