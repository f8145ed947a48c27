"""Guests that fail alone: number and place of restarts, and when the attempts are reset."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_failing, messages, transitions
from saltvirt.ha.model.messages import GuestStatus
from saltvirt.ha.model.registry import ERROR, FENCING, MAINTENANCE, REST, SUSPECTED, UP, HostRecord
from tests.unit.ha.model import made

CRASHED = GuestStatus(1, messages.CRASHED)
SAID = "it failed: QEMU or the guest's kernel crashed; "
TRIES = (guest_failing.may_restart, guest_failing.may_relocate, guest_failing.has_failed)


def crashed(of=None, there=CRASHED, restarts=2, relocates=2, **more):
    wanted = made.wanted(restarts=restarts, relocates=relocates)
    return made.case(of, there, wanted=wanted, **more)


def held(case):
    """What would be done, and why."""
    rows = (row for row in transitions.GUESTS if row.condition in TRIES)
    return {
        made.row_name(row): row.detail(case) for row in rows if row.condition(case) is not False
    }


@pytest.mark.parametrize(
    "restarts, relocates, may",
    [
        (0, 0, ["may_restart", "may_relocate", "has_failed"]),
        (1, 0, ["may_restart", "may_relocate", "has_failed"]),
        (2, 0, ["may_relocate", "has_failed"]),
        (2, 1, ["may_relocate", "has_failed"]),
        (2, 2, ["has_failed"]),
        (3, 3, ["has_failed"]),
    ],
)
def test_a_guest_that_failed_is_tried_again_so_often_as_it_may(restarts, relocates, may):
    how = {
        "may_restart": "it is restarted on the same host",
        "may_relocate": "it is started on another host",
        "has_failed": "no attempts are left",
    }
    found = held(crashed(made.record(restarts=restarts, relocates=relocates)))
    assert found == {when: SAID + how[when] for when in may}


@pytest.mark.parametrize("restarts, resets, may", [(0, 1, True), (0, 2, False), (1, 1, False)])
def test_what_its_watchdog_reset_counts_as_restarts(restarts, resets, may):
    there = replace(CRASHED, resets=resets)
    assert guest_failing.may_restart(crashed(made.record(restarts=restarts), there)) is may


@pytest.mark.parametrize("resets, has", [(1, False), (2, True)])
def test_a_guest_that_its_watchdog_resets_more_often_than_it_may_be_restarted_failed(resets, has):
    case = crashed(there=replace(made.RUNS, resets=resets), restarts=1)
    assert guest_failing.may_relocate(case) is has


@pytest.mark.parametrize(
    "of, there",
    [
        ({}, None),
        ({}, made.RUNS),
        ({"epoch": 2}, CRASHED),  # the start that it is to have has not begun
        ({"run": False}, CRASHED),
        ({"target": "h2"}, CRASHED),
    ],
)
def test_nothing_failed_while_the_start_that_is_meant_is_not_seen_to_fail(of, there):
    assert held(crashed(made.record(**of), there)) == {}


@pytest.mark.parametrize("state, known", [
    (UP, True), (MAINTENANCE, True), (SUSPECTED, False), (FENCING, False), (REST, False),
])  # fmt: skip
def test_a_guest_fails_alone_while_its_host_is_well(state, known):
    case = crashed(hosts={"h1": HostRecord(state, boot=1)})
    assert bool(held(case)) is known


def test_nothing_is_tried_again_while_all_is_disarmed():
    assert held(crashed(registry=made.registry({"web1": made.record()}, armed=False))) == {}


@pytest.mark.parametrize("trouble, silent_s, failed", [
    (messages.IO_FAILED, None, True),
    (messages.IO_FAILED, 5.9, True),
    (messages.IO_FAILED, 6, False),
    (messages.PANICKED, 6, True),
])  # fmt: skip
def test_its_io_may_fail_with_its_hosts_storage(trouble, silent_s, failed):
    there = replace(made.RUNS, trouble=trouble)
    beat = made.beat(guests={"web1": there}, storage_silent_s=silent_s)
    assert bool(held(crashed(there=there, beats=[beat]))) is failed


@pytest.mark.parametrize("there, said", [
    (None, ""),
    (made.RUNS, ""),
    (replace(made.RUNS, trouble=messages.PANICKED), ""),
    (replace(made.RUNS, trouble=messages.FULL, detail="no space on /srv"), "no space on /srv"),
    (GuestStatus(2, messages.RUNNING, trouble=messages.FULL), ""),
])  # fmt: skip
def test_a_guest_waits_for_storage_that_is_full(there, said):
    case = made.case(there=there)
    assert guest_failing.waits_for_storage(case) is bool(said)
    assert guest_failing.storage_obstacle(case) == said


@pytest.mark.parametrize("tries", [{"restarts": 1}, {"relocates": 1}, {"failed": ("h2",)}])
@pytest.mark.parametrize("ran, stable", [
    ({"web1": (1, made.NOW_S - 120)}, True),
    ({"web1": (1, made.NOW_S - 119.9)}, False),
    ({"web1": (2, made.NOW_S - 500)}, False),
    ({"web2": (1, made.NOW_S - 500)}, False),
])  # fmt: skip
def test_a_guest_that_ran_well_for_long_has_all_its_tries_again(tries, ran, stable):
    case = made.case(made.record(**tries), state=made.master(ran_s=ran))
    assert guest_failing.is_stable(case) is stable
    assert guest_failing.forgive(case, case.record) == made.record()


def test_a_guest_that_used_up_no_try_has_nothing_to_be_forgiven():
    ran = {"web1": (1, made.NOW_S - 500)}
    assert guest_failing.is_stable(made.case(state=made.master(ran_s=ran))) is False


def test_a_guest_that_is_not_seen_running_is_not_stable_however_soon_one_is():
    view = made.seen(policy=replace(made.POLICY, stable_s=0))
    assert guest_failing.is_stable(made.case(made.record(restarts=1), view=view)) is False


@pytest.mark.parametrize("there, anew", [
    (None, 0),
    (CRASHED, 0),
    (made.RUNS, 2),
    (GuestStatus(1, messages.STARTING), 2),
])  # fmt: skip
def test_a_restart_is_a_new_start_and_kills_one_that_is_alive_first(there, anew):
    case = made.case(made.record(restarts=1), there)
    assert guest_failing.restart(case, case.record) == made.record(epoch=2, restarts=2, anew=anew)


def test_a_guest_goes_elsewhere_and_not_back_to_where_it_failed():
    case = made.case(made.record(failed=("h3",), restarts=2, relocates=1), CRASHED)
    assert guest_failing.relocate(case, case.record) == made.record(
        "", boot=1, run=False, last="h1", locations=case.record.locations, gentle=True,
        failed=("h1", "h3"), relocates=2, restarts=0,
    )  # fmt: skip


@pytest.mark.parametrize("there, kept", [
    (made.RUNS, True),
    (GuestStatus(1, messages.STARTING), True),
    (CRASHED, False),
    (None, False),
])  # fmt: skip
def test_one_in_error_that_is_alive_is_left_for_a_person_to_look_at(there, kept):
    record = made.record(state=ERROR)
    case = made.case(record, there)
    expected = record if kept else replace(record, run=False, gentle=True)
    assert guest_failing.fail(case, record) == expected
