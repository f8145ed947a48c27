"""The placement of guests: time, host, reasons against it, and confirmation that they run."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_placing, messages
from saltvirt.ha.model.messages import GuestStatus
from saltvirt.ha.model.registry import (
    FENCED,
    FENCING,
    MAINTENANCE,
    RECOVERING,
    REST,
    RETURNING,
    SUSPECTED,
    UP,
    GuestLocation,
    HostRecord,
)
from tests.unit.ha.model import made

DOWN = {"state": RECOVERING, "host": "", "boot": 0, "run": False, "locations": (), "last": "h1"}
ALL_HOSTS = {name: HostRecord(MAINTENANCE, boot=1) for name in made.HOSTS}


def down(**changes):
    return made.record(**{**DOWN, **changes})


def starting(host):
    return made.record(host, state=RECOVERING)


@pytest.mark.parametrize("state, known", [
    (UP, True), (MAINTENANCE, True), (SUSPECTED, False), (FENCING, False), (RETURNING, False),
])  # fmt: skip
def test_a_guest_is_seen_running_on_a_host_that_is_well(state, known):
    assert guest_placing.runs(made.case(hosts={"h1": HostRecord(state, boot=1)})) is known


@pytest.mark.parametrize("of, there", [
    ({}, None),
    ({}, GuestStatus(1, messages.STARTING)),
    ({}, GuestStatus(2, messages.RUNNING)),
    ({}, GuestStatus(1, messages.RUNNING, trouble=messages.FULL)),
    ({"run": False}, made.RUNS),
    ({"locations": ()}, made.RUNS),
])  # fmt: skip
def test_a_guest_does_not_run_before_the_start_that_is_meant_is_seen_where_it_may_run(of, there):
    assert guest_placing.runs(made.case(made.record(**of), there)) is False


@pytest.mark.parametrize("of, free", [
    ({}, True),
    ({"run": True}, True),
    ({"host": "h1", "boot": 1}, True),
    ({"host": "h1", "boot": 1, "run": True}, False),
    ({"locations": (GuestLocation("h2", 1),)}, False),  # it runs there still
    ({"locations": (GuestLocation("h3", 1),)}, True),  # that host has given it back
])  # fmt: skip
@pytest.mark.parametrize("hosts, room", [({}, True), (ALL_HOSTS, False)])
def test_a_guest_gets_a_place_when_it_has_none_and_can_run_nowhere(of, free, hosts, room):
    beat = made.beat("h2", guests={"web1": made.RUNS})
    case = made.case(down(**of), there=None, beats=[beat], hosts=hosts)
    assert (guest_placing.can_be_placed(case), guest_placing.cannot_be_placed(case)) == (
        free and room,
        free and not room,
    )


def test_no_guest_gets_a_place_while_all_is_disarmed():
    case = made.case(down(), registry=made.registry({"web1": down()}, armed=False))
    assert (guest_placing.can_be_placed(case), guest_placing.cannot_be_placed(case)) == (
        False,
        False,
    )


@pytest.mark.parametrize("state", [UP, SUSPECTED, FENCING, FENCED, REST, RETURNING, MAINTENANCE])
@pytest.mark.parametrize("of", [{}, {"failed": ("h1",)}, {"better": "h2"}, {"last": ""}])
def test_a_guest_waits_for_its_last_host_when_that_is_at_rest_or_returns(state, of):
    case = made.case(down(**of), hosts={"h1": HostRecord(state, "its reason", boot=1)})
    if state in (REST, RETURNING) and not of:
        assert case.choice == ("", "it waits for h1: its reason")
    else:
        assert case.choice[0] and not case.choice[1]


@pytest.mark.parametrize("of, hosts, chosen", [
    ({}, "h1 h2 h3", "h1"),
    ({"last": "h2"}, "h1 h2 h3", "h2"),
    ({"last": "h3"}, "h2", "h2"),
    ({"better": "h2"}, "h1 h2 h3", "h2"),
    ({"better": "h2"}, "h1", "h1"),
    ({"failed": ("h1",)}, "h1 h2", "h2"),
    ({"failed": ("h1",)}, "h1", "h1"),  # rather there than nowhere
    ({"failed": ("h1", "h2")}, "h1 h2", "h1"),
])  # fmt: skip
def test_which_host_a_guest_gets(of, hosts, chosen):
    up = hosts.split()
    shut = {name: HostRecord(MAINTENANCE) for name in made.HOSTS if name not in up}
    assert made.case(down(**of), hosts=shut).choice[0] == chosen


@pytest.mark.parametrize("of, busy, chosen, why", [
    ({}, "h2", "h1", ""),
    ({}, "h1", "h2", ""),
    ({"better": "h2"}, "h2", "", "h2: the maximum number of guests is already starting"),
    ({}, "h1 h2", "", "h1, h2: the maximum number of guests is already starting"),
])  # fmt: skip
def test_where_as_many_start_as_may_no_other_starts(of, busy, chosen, why):
    view = made.seen(
        policy=replace(made.POLICY, starts_at_once=1), guests={"web1": made.wanted()}
    )  # fmt: skip
    others = {f"of-{host}": starting(host) for host in busy.split()}
    case = made.case(down(**of), view=view, guests=others, hosts={"h3": HostRecord(MAINTENANCE)})
    assert case.choice == (chosen, why)


def test_a_guest_that_no_host_takes_has_the_reason_of_each():
    case = made.case(down(), hosts={**ALL_HOSTS, "h2": HostRecord(FENCED)})
    assert case.choice == ("", "h1: in maintenance; h2: fenced; h3: in maintenance")


@pytest.mark.parametrize("home, kept", [("", ""), ("h1", ""), ("h2", "h2")])
def test_a_guest_that_runs_is_at_peace_but_for_its_way_home(home, kept):
    case = made.case(made.record(
        home=home, better="h1", origin="h3", gentle=True, taker="h1", anew=1, restarts=1, turned=1,
    ))  # fmt: skip
    assert guest_placing.settle(case, case.record) == made.record(home=kept, restarts=1, turned=1)


def test_a_place_is_a_new_start_on_that_host_in_its_boot_and_takes_of_its_room():
    hosts = {"h2": HostRecord(UP, boot=3)}
    record = down(
        epoch=4, last="h1", better="h2", gentle=True, target="h3", taker="h3", turned=2, home="h1",
    )  # fmt: skip
    case = made.case(record, beats=[made.beat("h2", boot=3)], hosts=hosts)
    assert guest_placing.assign(case, record) == down(
        epoch=5, host="h2", boot=3, run=True, locations=(GuestLocation("h2", 3),), last="h2",
        better="h2", home="h1",
    )  # fmt: skip
    assert case.capacity.guests_on["h2"] == {"web1"} and case.capacity.starting["h2"] == 1
