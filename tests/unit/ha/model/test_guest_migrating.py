"""A migrating guest: target, arrival, and failures."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import guest_migrating, messages, transitions, view
from saltvirt.ha.model.registry import (
    BLOCKED,
    FENCED,
    MAINTENANCE,
    PLACED,
    RECOVERING,
    SUSPECTED,
    UP,
    GuestLocation,
    HostRecord,
)
from saltvirt.placement.facts import Host
from tests.unit.ha.model import made

GONE, EMPTIED = HostRecord(FENCED, boot=1, dead_before=2), HostRecord(MAINTENANCE, boot=1)
H1, H2, H3 = (GuestLocation(name, 1) for name in made.HOSTS)
# as of a registry that no host acts by yet: none of them says that it has no copy
RUNS = made.record(epoch=4, changed=6)
THERE = messages.GuestStatus(4, messages.RUNNING)
MOVES = replace(RUNS, locations=(H1, H2), target="h2", target_boot=1)


def case(of=RUNS, there=THERE, **more):
    return made.case(of, there, **more)


def on_h2(state, epoch=5, **more):
    return [made.beat("h2", guests={"web1": messages.GuestStatus(epoch, state)}, **more)]


BOUND_H1 = {"web1": view.HostBinding("h1", "its disk")}
BOUND_H9 = {"web1": view.HostBinding("h9", "its disk")}


def wish(host, kind=view.MIGRATE, number=1):
    return {"web1": view.RelocationRequest(number, kind, host)}


def likes(*guests, **hosts):
    """A rule with ranks."""
    return (view.GuestRule(guests or ("web1",), hosts=hosts, strict=False),)


def disarmed(of):
    return replace(of, registry=replace(of.registry, armed=False))


def ran(since_s, epoch=4):
    """A master's state: since when it sees the guest running."""
    return made.master(ran_s={"web1": (epoch, since_s)})


def refuse(*_):
    raise AssertionError("placement was asked")


# -- on its way ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of, beats, arrived",
    [
        (MOVES, on_h2(messages.RUNNING), True),
        (MOVES, on_h2(messages.INCOMING), False),
        (MOVES, on_h2(messages.RUNNING, epoch=4), False),  # of another start
        (MOVES, on_h2(messages.RUNNING, epoch=6), False),
        (MOVES, on_h2(messages.RUNNING, boot=2), False),  # of another start of the host
        (MOVES, (), False),
        (RUNS, on_h2(messages.RUNNING), False),  # it is not to go there
    ],
)
def test_it_has_arrived_when_its_target_says_that_it_runs_by_the_next_epoch(of, beats, arrived):
    assert guest_migrating.has_arrived(case(of, beats=beats)) is arrived


@pytest.mark.parametrize(
    "of, there, failed",
    [
        (MOVES, replace(THERE, migrated=5), True),
        (MOVES, replace(THERE, migrated=4), False),  # the one before
        (MOVES, replace(THERE, migrated=5, state=messages.STOPPED), False),
        (MOVES, THERE, False),
        (MOVES, None, False),
        (RUNS, replace(THERE, migrated=5), False),
    ],
)
def test_a_migration_has_failed_when_its_host_says_so_and_that_it_runs_on(of, there, failed):
    assert guest_migrating.migration_failed(case(of, there)) is failed


@pytest.mark.parametrize(
    "of, there, more, lost",
    [
        (MOVES, None, {}, True),
        (MOVES, replace(THERE, state=messages.STOPPED), {}, True),
        (MOVES, replace(THERE, state=messages.STARTING), {}, False),
        (MOVES, None, {"beats": on_h2(messages.INCOMING)}, False),
        (MOVES, None, {"beats": on_h2(messages.STOPPED)}, True),
        (MOVES, None, {"beats": on_h2(messages.INCOMING, boot=2)}, False),  # who knows
        (MOVES, None, {"hosts": {"h2": GONE}, "beats": on_h2(messages.RUNNING)}, True),
        (MOVES, None, {"hosts": {"h2": GONE}, "beats": on_h2(messages.OFF, boot=2)}, True),
        (MOVES, None, {"beats": [made.beat("h1", boot=2)]}, False),  # its host does not say
        (RUNS, None, {}, False),
    ],
)
def test_it_is_lost_when_neither_host_has_it_and_both_are_known(of, there, more, lost):
    assert guest_migrating.was_lost_in_migration(case(of, there, **more)) is lost


@pytest.mark.parametrize(
    "of, hosts, lost",
    [(MOVES, {}, False), (MOVES, {"h2": GONE}, True), (MOVES, {"h1": GONE}, False),
     (RUNS, {"h2": GONE}, False)],
)  # fmt: skip
def test_its_target_is_lost_when_that_is_proven_to_be_over(of, hosts, lost):
    assert guest_migrating.lost_its_target(case(of, hosts=hosts)) is lost


# -- where a person wants it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "of, wishes, more, found",
    [
        (RUNS, wish("h2", view.RELOCATE), {}, "is_to_relocate"),
        (RUNS, wish("h2", view.MIGRATE), {}, "is_to_migrate"),
        (replace(RUNS, last_request=1), wish("h2", view.RELOCATE), {}, None),  # it was followed
        (replace(RUNS, last_request=1), wish("h2", view.MIGRATE), {}, None),
        (MOVES, wish("h3", view.RELOCATE), {}, None),  # when it has arrived
        (MOVES, wish("h3", view.MIGRATE), {}, None),
        (RUNS, wish("h2", view.RELOCATE), {"hosts": {"h2": EMPTIED}}, None),
        (RUNS, wish("h2", view.MIGRATE), {"hosts": {"h2": EMPTIED}}, None),
        (RUNS, wish("h2"), {"bindings": {"web1": view.HostBinding("h1", "its disk")}}, None),
        (RUNS, wish("h1", view.RELOCATE), {}, "is_where_requested"),
        (RUNS, wish("h1", view.MIGRATE), {}, "is_where_requested"),
        (replace(RUNS, last_request=1), wish("h1"), {}, None),
        (MOVES, wish("h1"), {}, None),  # not for long
    ],
)
def test_what_is_done_for_where_a_person_wants_it(of, wishes, more, found):
    row = transitions.next_guest_row(case(of, relocations=wishes, **more))
    assert made.row_name(row) == found


FULL_H2 = {name: Host(name, 8, (name != "h2") * 8 * 1024**2, types=("kvm",)) for name in made.HOSTS}


@pytest.mark.parametrize(
    "of, more, goal",
    [
        (RUNS, {"hosts": {"h1": EMPTIED}}, "h3"),
        (replace(RUNS, home="h3"), {}, "h3"),
        (RUNS, {}, ""),
    ],
)
def test_one_that_a_person_wants_where_no_room_is_goes_its_ways_meanwhile(of, more, goal):
    assert (
        guest_migrating.goal(case(of, placement_hosts=FULL_H2, relocations=wish("h2"), **more))
        == goal
    )


@pytest.mark.parametrize("kind", [view.MIGRATE, view.RELOCATE])
def test_it_stays_where_it_is_while_all_is_disarmed(kind):
    """Stopped to be started elsewhere, it would be down until all is armed again."""
    assert transitions.next_guest_row(disarmed(case(relocations=wish("h2", kind)))) is None


def test_where_a_person_wants_it_is_followed_once():
    of = case(relocations=wish("h1", number=3))
    why = "it already runs on the requested host"
    assert made.after(of) == replace(RUNS, last_request=3, reason=why, changed=9)


def test_it_is_shut_down_to_be_started_where_a_person_wants_it():
    of = case(relocations=wish("h2", view.RELOCATE, number=3))
    assert made.after(of) == replace(
        RUNS, state=RECOVERING, reason="an operator requested another host", changed=9,
        last_request=3,
        host="", run=False, gentle=True, better="h2",
    )  # fmt: skip


# -- where it goes by itself -----------------------------------------------------------------------

TO_H2 = {"relocations": wish("h2")}
FROM_H1 = {"hosts": {"h1": EMPTIED}, "rules": likes(h2=1)}


@pytest.mark.parametrize("why", [TO_H2, FROM_H1, {"rules": likes(h2=1)}])
@pytest.mark.parametrize(
    "of, there, goal",
    [
        (RUNS, THERE, "h2"),
        (replace(RUNS, locations=()), THERE, "h2"),
        (replace(RUNS, run=False), THERE, ""),
        (replace(RUNS, locations=(H1, H2)), THERE, ""),  # another copy may run
        (MOVES, THERE, ""),
        (replace(MOVES, locations=(H2,)), THERE, ""),  # its host is gone while it arrives
        (RUNS, None, ""),
        (RUNS, replace(THERE, state=messages.STARTING), ""),
        (RUNS, replace(THERE, epoch=3), ""),  # by a start of before
    ],
)
def test_only_one_that_runs_where_it_is_to_migrates_whatever_for(of, there, goal, why):
    of = case(of, there, **why)
    assert guest_migrating.goal(of) == goal
    assert guest_migrating.is_to_migrate(of) is bool(goal)
    assert guest_migrating.is_to_migrate(disarmed(of)) is False


def leaving(phase=messages.LEAVING, live=True, freeze=False):
    guests = {"web1": THERE}
    return {"beats": [made.beat("h1", guests=guests, phase=phase, live=live, freeze=freeze)]}


@pytest.mark.parametrize(
    "more, goes",
    [
        ({"hosts": {"h1": EMPTIED}}, True),
        (leaving(), True),
        (leaving(live=False), False),
        (leaving(freeze=True), False),  # it waits for its host
        (leaving(phase=messages.RESTING), False),
        ({}, False),
    ],
)
def test_it_leaves_a_host_that_is_to_be_empty_or_shuts_down(more, goes):
    """Whether or not it goes to better hosts by itself."""
    of = case(wanted=made.wanted(failback=False), **more)
    assert (guest_migrating.goal(of) in ("h2", "h3")) is goes
    assert bool(guest_migrating.goal(of)) is goes


def test_it_stays_where_it_is_to_leave_while_no_host_takes_it():
    tied = {"web1": view.HostBinding("h1", "its disk")}
    assert guest_migrating.goal(case(hosts={"h1": EMPTIED}, bindings=tied)) == ""


LIKES_H2 = likes(h1=1, h2=2, h3=2)
SAME = likes(h1=1, h2=1)


@pytest.mark.parametrize(
    "of, more, better",
    [
        (RUNS, {"rules": likes(h1=1, h2=2, h3=3)}, "h3"),
        (RUNS, {"rules": likes(h1=3, h2=2, h3=1)}, ""),
        (RUNS, {"rules": SAME}, ""),
        (RUNS, {"rules": SAME, **leaving(freeze=True)}, ""),
        (RUNS, {"rules": likes(h2=0), **leaving(freeze=True)}, ""),
        (RUNS, {"rules": likes("web2", h2=1)}, ""),  # another guest's
        (RUNS, {"rules": likes(h2=1) + likes(h1=2)}, ""),
        (RUNS, {"rules": likes(h3=2) + likes(h1=1)}, "h3"),
        (RUNS, {"rules": likes(h2=1, h3=2), "hosts": {"h3": EMPTIED}}, "h2"),
        (RUNS, {"rules": likes(h2=1), "bindings": BOUND_H1}, ""),
        (RUNS, {"rules": likes(h2=1), "bindings": BOUND_H9}, ""),
        (RUNS, {"rules": likes(h2=1), "hosts": {"h1": HostRecord(SUSPECTED, boot=1)}}, ""),
        (replace(RUNS, failed=("h3",)), {"rules": likes(h2=1)}, ""),
        # it did not start there in that boot
        (replace(RUNS, refused=(H3,)), {"rules": likes(h2=1, h3=2)}, "h2"),
        (replace(RUNS, refused=(H2, H3)), {"rules": likes(h2=1, h3=2)}, ""),
        (replace(RUNS, refused=(GuestLocation("h3", 0),)), {"rules": likes(h2=1, h3=2)}, "h3"),
        # back from what was planned
        (replace(RUNS, home="h2"), {}, "h2"),
        (replace(RUNS, home="h2"), {"rules": SAME}, "h2"),
        (replace(RUNS, home="h2"), {"rules": likes(h1=1)}, ""),
        (replace(RUNS, home="h2"), {"rules": likes(h2=1, h3=2)}, "h2"),
        (replace(RUNS, home="h2"), {"hosts": {"h2": EMPTIED}}, ""),
        (replace(RUNS, home="h2"), {"hosts": {"h2": EMPTIED}, "rules": likes(h3=1)}, "h3"),
        (replace(RUNS, home="h2", refused=(H2,)), {}, ""),
        (replace(RUNS, home="h1"), {}, ""),  # it never left
        (replace(RUNS, home="h1"), {"rules": likes(h2=1)}, "h2"),
    ],
)  # fmt: skip
def test_it_goes_to_a_host_that_it_likes_better_than_its_own(of, more, better):
    """Live, or by a stop and a start, or not at all, as a person wants it."""
    for failback, goal, back in (
        (True, better, ""), (view.RESTART, "", better), (False, "", ""),
    ):  # fmt: skip
        found = case(of, wanted=made.wanted(failback=failback), **more)
        assert (guest_migrating.goal(found), guest_migrating.back(found)) == (goal, back)
        assert guest_migrating.is_to_restart_elsewhere(found) is bool(back)
        assert guest_migrating.is_to_restart_elsewhere(disarmed(found)) is False


@pytest.mark.parametrize(
    "of, more",
    [
        (RUNS, {}),
        (RUNS, {"rules": likes(h1=3, h2=2)}),
        (RUNS, {"rules": likes("web2", h2=2)}),
        (replace(RUNS, home="h2"), {"hosts": {"h2": EMPTIED}}),
        (replace(RUNS, home="h2"), {"rules": likes(h1=1)}),
    ],
)
def test_placement_is_asked_only_where_a_better_host_may_be(of, more):
    """It is asked of many guests in each beat, as long as their host is in maintenance."""
    found = case(of, **more)
    found.capacity.ranked = refuse
    assert guest_migrating.goal(found) == ""


@pytest.mark.parametrize("of", [MOVES, replace(RUNS, run=False), replace(RUNS, locations=(H1, H3))])
def test_only_one_that_is_well_is_stopped_for_a_better_host(of):
    assert (
        guest_migrating.back(case(of, wanted=made.wanted(failback=view.RESTART), rules=likes(h2=1)))
        == ""
    )


@pytest.mark.parametrize("starts, back", [(3, "h2"), (4, "")])
def test_it_is_not_stopped_for_a_host_where_it_would_wait(starts, back):
    found = case(wanted=made.wanted(failback=view.RESTART), rules=likes(h2=1))
    found.capacity.starting["h2"] = starts
    assert guest_migrating.back(found) == back


@pytest.mark.parametrize(
    "turned, since_s, most",
    [(1, 10, {}), (2, 20, {}), (3, 40, {"planned": 30}), (4, 80, {"planned": 30}),
     (7, 600, {"planned": 30}), (10**6, 600, {"planned": 30})],
)  # fmt: skip
def test_after_migrations_that_failed_it_waits_twice_as_long_each_time(turned, since_s, most):
    """To an end; from a host that is to be empty never for long."""
    of = replace(RUNS, turned=turned)
    for more, waits_s in (({"rules": likes(h2=1)}, since_s),
                          (FROM_H1, most.get("planned", since_s))):  # fmt: skip
        early, late = made.NOW_S - waits_s + 0.1, made.NOW_S - waits_s
        assert guest_migrating.goal(case(of, state=ran(early), **more)) == ""
        assert guest_migrating.goal(case(of, state=ran(late), **more)) == "h2"
        assert (
            guest_migrating.goal(case(of, state=ran(late, epoch=3), **more)) == ""
        )  # since another start
        assert guest_migrating.goal(case(of, **more)) == ""  # not seen running by this master yet


def test_a_person_has_not_to_wait_after_a_migration_that_failed():
    assert guest_migrating.goal(case(replace(RUNS, turned=9), **TO_H2)) == "h2"


# -- what is written down --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of, more, home",
    [
        (RUNS, TO_H2, ""),
        (RUNS, {"rules": likes(h2=1)}, ""),
        (RUNS, FROM_H1, "h1"),
        (RUNS, {"rules": likes(h2=1), **leaving()}, "h1"),
        (replace(RUNS, home="h3"), FROM_H1, "h3"),  # it was on its way home
        (replace(RUNS, home="h3"), TO_H2, "h3"),
    ],
)
def test_one_that_is_sent_has_two_places_and_remembers_its_home(of, more, home):
    found = case(of, **more)
    row = transitions.next_guest_row(found)
    assert row.condition is guest_migrating.is_to_migrate
    assert row.apply(found, 9) == replace(
        of, reason=row.reason, changed=9, target="h2", target_boot=1, locations=(H1, H2), home=home
    )
    assert (found.capacity.guests_on["h2"], found.capacity.starting["h2"]) == ({"web1"}, 0)


def test_one_that_is_sent_goes_to_the_boot_in_which_its_target_is_now():
    hosts = {"h2": HostRecord(UP, boot=7)}
    found = case(hosts=hosts, beats=[made.beat("h2", boot=7)], **TO_H2)
    after = made.after(found)
    assert (after.target_boot, after.locations) == (7, (H1, GuestLocation("h2", 7)))


@pytest.mark.parametrize(
    "of, more, changes",
    [
        (MOVES, {}, {}),
        (replace(MOVES, turned=3), {}, {"turned": 0}),
        (replace(MOVES, home="h2"), {}, {"home": ""}),
        (replace(MOVES, home="h1"), {}, {"home": "h1"}),
        (MOVES, {"relocations": wish("h2", number=3)}, {"last_request": 3}),
        (MOVES, {"relocations": wish("h2", view.RELOCATE, number=3)}, {"last_request": 3}),
        (
            replace(MOVES, last_request=2),
            {"relocations": wish("h3", number=3)},
            {"last_request": 2},
        ),  # it is to follow
        (MOVES, {"hosts": {"h1": GONE}}, {"locations": (H2,)}),
    ],
)
def test_one_that_has_arrived_runs_there(of, more, changes):
    found = case(replace(of, state=BLOCKED, run=False), beats=on_h2(messages.RUNNING), **more)
    row = transitions.next_guest_row(found)
    after = {
        "host": "h2", "boot": 1, "last": "h2", "epoch": 5, "run": True, "target": "",
        "target_boot": 0, **changes,
    }  # fmt: skip
    expected = replace(of, state=PLACED, reason="its migration has completed", changed=9, **after)
    assert row.apply(found, 9) == expected


@pytest.mark.parametrize(
    "of, more, changes",
    [
        (MOVES, {}, {"turned": 1}),
        (replace(MOVES, turned=3, home="h1"), {}, {"turned": 4}),
        (MOVES, {"hosts": {"h2": GONE}}, {"turned": 1, "locations": (H1,)}),
        (MOVES, {"relocations": wish("h2", number=3)}, {"turned": 1, "last_request": 3}),
        # they were not tried by this
        (MOVES, {"relocations": wish("h3", number=3)}, {"turned": 1}),
        (MOVES, {"relocations": wish("h2", view.RELOCATE, number=3)}, {"turned": 1}),
    ],
)
def test_one_whose_migration_failed_runs_on_where_it_was(of, more, changes):
    """And by an epoch that neither the migration nor the start before it had."""
    found = case(of, replace(THERE, migrated=5), **more)
    row = transitions.next_guest_row(found)
    after = {"target": "", "target_boot": 0, "epoch": 6, **changes}
    expected = replace(of, state=PLACED, reason="its migration failed", changed=9, **after)
    assert row.apply(found, 9) == expected


def test_one_that_goes_to_a_better_host_by_a_restart_is_shut_down_first():
    found = case(wanted=made.wanted(failback=view.RESTART), rules=likes(h2=1))
    row = transitions.next_guest_row(found)
    assert row.condition is guest_migrating.is_to_restart_elsewhere
    assert row.apply(found, 9) == replace(
        RUNS, state=RECOVERING, reason=row.reason, changed=9, host="", run=False, gentle=True,
        better="h2", origin="h1",
    )  # fmt: skip
    assert (found.capacity.guests_on["h2"], found.capacity.starting["h2"]) == ({"web1"}, 1)


WENT = replace(
    RUNS, state=RECOVERING, host="h2", last="h2", locations=(H2,), better="h2", origin="h1"
)
FAILED = replace(THERE, state=messages.FAILED)


@pytest.mark.parametrize(
    "of, there, back",
    [
        (WENT, FAILED, True),
        (WENT, THERE, False),
        (replace(WENT, origin=""), FAILED, False),  # it was started there for another reason
        (replace(WENT, better="h3"), FAILED, False),  # that host was gone, and this took it
    ],
)
def test_one_that_does_not_start_on_the_better_host_goes_back(of, there, back):
    found = case(of, there)
    assert guest_migrating.failed_on_better_host(found) is back
    if back:
        reason = guest_migrating.going_back_reason(found)
        assert reason == "it failed: it did not start; it is started on h1 again"


@pytest.mark.parametrize(
    "before, after",
    [((), (H2,)), ((H3,), (H3, H2)), ((GuestLocation("h2", 0), H3), (H3, H2))],
)  # fmt: skip
def test_it_does_not_go_there_again_before_that_host_has_booted_anew(before, after):
    """No try is used up."""
    of = replace(WENT, refused=before, failed=("h3",), restarts=1)
    found = case(of, FAILED)
    assert made.after(found) == replace(
        of, reason="it failed: it did not start; it is started on h1 again", changed=9, host="",
        run=False,
        gentle=True, better="h1", origin="", refused=after, failed=("h2", "h3"),
    )  # fmt: skip
