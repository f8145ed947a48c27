"""A guest whose host is in doubt, has failed, shuts down or has lost its storage."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_failover, messages, transitions, view
from saltvirt.ha.model.registry import (
    BLOCKED,
    FENCED,
    FENCING,
    MAINTENANCE,
    PLACED,
    RECOVERING,
    REST,
    RETURNING,
    STOPPED,
    SUSPECTED,
    UP,
    GuestLocation,
    HostRecord,
)
from tests.unit.ha.model import made

GONE = HostRecord(FENCED, boot=1, dead_before=2)
H1, H2, H3 = (GuestLocation(name, 1) for name in made.HOSTS)
# as of a registry that no host acts by yet: none of them says that it has no copy
RUNS = made.record(changed=6)
MOVES = replace(RUNS, locations=(H1, H2), target="h2", target_boot=1)
DOWN = replace(RUNS, state=STOPPED, run=False)


def on_h2(state):
    return made.beat("h2", guests={"web1": messages.GuestStatus(2, state)})


def disarmed(case):
    return replace(case, registry=replace(case.registry, armed=False))


@pytest.mark.parametrize(
    "of, gone, lost",
    [
        (RUNS, (), False),
        (RUNS, ("h1",), True),
        (replace(RUNS, locations=(H1, H2)), ("h2",), False),  # that was another copy
        (replace(RUNS, locations=(H1, H2)), ("h1",), True),
        (replace(RUNS, host="", run=False), (), False),  # it has been taken from there
        (replace(RUNS, host="", run=False), ("h1",), True),
        (replace(RUNS, run=False, locations=(H1, H2)), ("h2",), True),
        (MOVES, ("h1",), True),
        (MOVES, ("h2",), False),
    ],
)
def test_it_has_lost_its_host_when_that_is_proven_to_be_over(of, gone, lost):
    assert guest_failover.has_lost_its_host(made.case(of, hosts=dict.fromkeys(gone, GONE))) is lost


@pytest.mark.parametrize("there, lost", [(messages.INCOMING, False), (messages.OFF, True)])
def test_one_that_comes_to_its_target_has_not_lost_the_host_that_it_left(there, lost):
    case = made.case(MOVES, hosts={"h1": GONE}, beats=[on_h2(there)])
    assert guest_failover.has_lost_its_host(case) is lost


def stuck(state, why="nothing is to be expected"):
    return HostRecord(state, boot=1, stuck=True, reason=why)


SILENT, FENCED_NOW = HostRecord(SUSPECTED, boot=1), HostRecord(FENCING, boot=1)
BOTH = replace(RUNS, locations=(H1, H2))


@pytest.mark.parametrize(
    "of, hosts, why, awaits",
    [
        (RUNS, {}, "", False),
        (RUNS, {"h1": SILENT}, "", False),
        (RUNS, {"h1": stuck(SUSPECTED)}, "h1 is suspected: nothing is to be expected", False),
        (RUNS, {"h1": FENCED_NOW}, "", True),
        (RUNS, {"h1": stuck(FENCING)}, "h1 is fencing: nothing is to be expected", False),
        (RUNS, {"h1": stuck(UP)}, "", False),
        (RUNS, {"h2": stuck(SUSPECTED), "h3": FENCED_NOW}, "", False),  # it is not there
        (BOTH, {"h2": stuck(SUSPECTED)}, "h2 is suspected: nothing is to be expected", False),
        (BOTH, {"h2": FENCED_NOW}, "", True),
        (BOTH, {"h1": FENCED_NOW, "h2": stuck(FENCING)}, "h2 is fencing: nothing is to be expected",
         False),
        (BOTH, {"h1": stuck(FENCING), "h2": GONE}, "h1 is fencing: nothing is to be expected",
         False),
        (replace(RUNS, host="", run=False, locations=()), {}, "", False),
    ],
)  # fmt: skip
def test_it_is_in_doubt_where_no_proof_is_to_be_expected_of_a_silent_host(of, hosts, why, awaits):
    case = made.case(of, hosts=hosts)
    assert guest_failover.is_in_doubt(case) is bool(why)
    assert guest_failover.doubt(case) == why
    assert guest_failover.awaits_proof(case) is awaits


@pytest.mark.parametrize(
    "of, there, beat, left",
    [
        # its host goes down without it
        (RUNS, made.RUNS, {"phase": messages.LEAVING}, True),
        (RUNS, made.RUNS, {"phase": messages.SHUT_DOWN}, True),
        (RUNS, made.RUNS, {"phase": messages.WORKING}, False),
        (RUNS, made.RUNS, {"phase": messages.RESTING}, False),
        (RUNS, made.RUNS, {"phase": messages.LEAVING, "freeze": True}, False),
        (RUNS, made.RUNS, {"phase": messages.LEAVING, "boot": 2}, False),
        # its guests migrate first: it is released when it runs there no more
        (RUNS, made.RUNS, {"phase": messages.LEAVING, "live": True}, False),
        (RUNS, made.RUNS, {"phase": messages.SHUT_DOWN, "live": True}, True),
        (RUNS, replace(made.RUNS, state=messages.STOPPED), {"phase": messages.LEAVING,
        "live": True},
         True),
        (RUNS, None, {"phase": messages.LEAVING, "live": True}, True),
        # others know more of it
        (MOVES, made.RUNS, {"phase": messages.LEAVING}, False),
        (replace(RUNS, run=False), made.RUNS, {"phase": messages.LEAVING}, False),
    ],
)  # fmt: skip
def test_it_is_left_by_a_host_that_shuts_down_unless_it_moves_or_waits(of, there, beat, left):
    told = {"web1": there} if there else {}
    case = made.case(of, beats=[made.beat("h1", guests=told, **beat)])
    assert guest_failover.host_shuts_down(case) is left
    assert guest_failover.host_shuts_down(disarmed(case)) is False


@pytest.mark.parametrize(
    "of, state, beat, lost",
    [
        (RUNS, UP, {"storage_silent_s": 20}, True),
        (RUNS, UP, {"storage_silent_s": 19.9}, False),
        (RUNS, UP, {"storage_silent_s": None}, False),
        (RUNS, MAINTENANCE, {"storage_silent_s": 20}, True),
        (RUNS, SUSPECTED, {"storage_silent_s": 20}, False),
        (RUNS, RETURNING, {"storage_silent_s": 20}, False),
        (RUNS, UP, {"storage_silent_s": 20, "boot": 2}, False),
        (replace(RUNS, run=False), UP, {"storage_silent_s": 20}, False),
    ],
)
def test_a_host_that_is_heard_loses_its_guests_with_its_storage(of, state, beat, lost):
    hosts = {"h1": HostRecord(state, boot=1)}
    case = made.case(of, hosts=hosts, beats=[made.beat("h1", guests={"web1": made.RUNS}, **beat)])
    assert guest_failover.has_no_storage(case) is lost
    assert guest_failover.has_no_storage(disarmed(case)) is False


def test_it_stays_without_its_storage_where_no_other_host_has_it():
    silent = [made.beat(name, storage_silent_s=20) for name in made.HOSTS]
    assert guest_failover.has_no_storage(made.case(RUNS, beats=silent)) is False


def test_of_a_host_that_knows_of_no_storage_nothing_is_lost_however_short_the_wait():
    hasty = replace(made.POLICY, storage_lost_s=1)
    assert guest_failover.has_no_storage(made.case(RUNS, policy=hasty)) is False


LEASED = made.wanted(leased=True)


@pytest.mark.parametrize(
    "of, wanted, hosts, may",
    [
        (RUNS, LEASED, {"h1": stuck(FENCING)}, True),
        (RUNS, made.wanted(), {"h1": stuck(FENCING)}, False),  # its disks have none
        (RUNS, LEASED, {"h1": FENCED_NOW}, False),  # a proof may come yet
        (RUNS, LEASED, {"h1": stuck(SUSPECTED)}, False),  # it is not given up
        (replace(RUNS, taker="h2"), LEASED, {"h1": stuck(FENCING)}, False),  # it was asked for
        (BOTH, LEASED, {"h1": stuck(FENCING), "h2": stuck(FENCING)}, True),
        (BOTH, LEASED, {"h1": stuck(FENCING), "h2": stuck(SUSPECTED)}, False),
        (BOTH, LEASED, {"h1": stuck(FENCING)}, False),  # the other one is well
        (RUNS, LEASED, {"h1": stuck(FENCING), "h2": SILENT, "h3": SILENT}, False),  # for nobody
    ],
)
def test_the_lease_is_asked_for_when_nothing_else_can_prove_it_of_any_place(of, wanted, hosts, may):
    assert guest_failover.may_ask_for_lease(made.case(of, wanted=wanted, hosts=hosts)) is may


LIKED = view.GuestRule(("web1",), hosts={"h1": 3, "h2": 2, "h3": 1}, strict=False)


@pytest.mark.parametrize("places, taker", [((H1,), "h2"), ((H1, H2), "h3")])
def test_the_best_host_where_no_copy_may_be_is_to_take_the_lease(places, taker):
    of = replace(RUNS, state=BLOCKED, locations=places)
    case = made.case(of, wanted=LEASED, rules=(LIKED,), hosts={
        one.host: stuck(FENCING) for one in places
    })  # fmt: skip
    row = transitions.next_guest_row(case)
    assert row.condition is guest_failover.may_ask_for_lease
    why = f"{places[0].host} is fencing: nothing is to be expected"
    assert row.apply(case, 9) == replace(of, taker=taker, changed=9, reason=why)


def test_nobody_is_to_take_a_lease_where_nobody_can():
    """Asked all the same, as the hosts went meanwhile."""
    of = replace(RUNS, state=BLOCKED)
    case = made.case(of, hosts=dict.fromkeys(made.HOSTS, stuck(FENCING)))
    assert guest_failover.ask(case, of).taker == ""


TAKEN = replace(RUNS, state=BLOCKED, taker="h2")


@pytest.mark.parametrize(
    "of, beat, has",
    [
        (TAKEN, {"leases": {"web1": 6}}, True),
        (TAKEN, {"leases": {"web1": 5}}, False),  # for a question of before
        (TAKEN, {}, False),
        (TAKEN, {"leases": {"web1": 6}, "boot": 2}, False),  # a start that is not known yet
        (replace(TAKEN, taker="h3"), {"leases": {"web1": 6}}, False),
        (replace(TAKEN, taker=""), {"leases": {"web1": 6}}, False),
    ],
)
def test_a_host_has_the_lease_that_it_was_asked_for(of, beat, has):
    case = made.case(of, beats=[made.beat("h2", **beat)])
    assert guest_failover.has_lease(case) is has


LEASE_H2 = made.beat("h2", leases={"web1": 6})


@pytest.mark.parametrize(
    "of, hosts, beats, after",
    [
        # started elsewhere, by a new epoch
        (RUNS, {"h1": GONE}, (), {"host": "", "run": False, "locations": ()}),
        # the migration had the epoch after the record's
        (MOVES, {"h1": GONE}, (), {
            "host": "", "run": False, "locations": (H2,), "target": "", "epoch": 2}),
        # the host that it had last is kept in mind
        (replace(RUNS, host="", run=False, last="h3"), {"h1": GONE}, (), {"locations": ()}),
        (replace(RUNS, last="h3"), {"h1": GONE}, (), {
            "host": "", "run": False, "locations": (), "last": "h1"}),
        # one that is down has its host still, where that is not gone
        (replace(DOWN, locations=(H1, H2)), {"h2": GONE}, (), {"locations": (H1,)}),
        (DOWN, {"h1": GONE}, (), {"host": "", "locations": ()}),
        # the lease is not requested any more
        (TAKEN, {"h1": GONE}, (), {"host": "", "run": False, "locations": (), "taker": ""}),
        # the lease proves it of all places; whoever has it is to start the guest
        (TAKEN, {"h1": stuck(FENCING)}, [LEASE_H2], {
            "host": "", "run": False, "locations": (), "taker": "", "better": "h2"}),
        (replace(TAKEN, locations=(H1, H3)), {"h1": GONE, "h3": stuck(FENCING)}, [LEASE_H2], {
            "host": "", "run": False, "locations": (), "taker": "", "better": "h2"}),
    ],
)  # fmt: skip
def test_what_is_proven_is_written_down(of, hosts, beats, after):
    wanted = made.wanted(desired_state=view.STOPPED if of.state == STOPPED else view.STARTED)
    case = made.case(of, wanted=wanted, hosts=hosts, beats=beats)
    row = transitions.next_guest_row(case)
    assert row.change is guest_failover.leave
    told = {"state": row.to, "reason": row.reason, "changed": 9}
    assert row.apply(case, 9) == replace(of, **told, **after)


@pytest.mark.parametrize("of, epoch", [(RUNS, 1), (MOVES, 2)])
@pytest.mark.parametrize("do, gentle", [("release", True), ("pull", False)])
def test_it_is_taken_from_its_host_and_shut_down_there_or_killed(of, epoch, do, gentle):
    of = replace(of, failed=("h3",), gentle=not gentle)
    after = getattr(guest_failover, do)(made.case(of), of)
    failed = ("h3",) if gentle else ("h1", "h3")
    assert after == replace(
        of, host="", run=False, target="", gentle=gentle, last="h1", epoch=epoch, failed=failed
    )


@pytest.mark.parametrize(
    "state, hosts, beat, found",
    [
        (PLACED, {}, {"phase": messages.LEAVING}, ("host_shuts_down", RECOVERING)),
        (RECOVERING, {}, {"storage_silent_s": 20}, ("has_no_storage", RECOVERING)),
        (PLACED, {"h1": stuck(SUSPECTED)}, {}, ("is_in_doubt", BLOCKED)),
        (PLACED, {"h1": FENCED_NOW}, {}, ("awaits_proof", RECOVERING)),
        (BLOCKED, {"h1": FENCED_NOW}, {}, ("awaits_proof", RECOVERING)),
        (PLACED, {"h1": HostRecord(REST, boot=1)}, {}, None),
    ],
)
def test_what_becomes_of_one_whose_host_is_not_well(state, hosts, beat, found):
    told = [made.beat("h1", guests={"web1": made.RUNS}, **beat)]
    row = transitions.next_guest_row(made.case(replace(RUNS, state=state), hosts=hosts, beats=told))
    assert (row and (made.row_name(row), row.to)) == found
