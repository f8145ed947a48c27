"""Each safety condition by itself, on both sides of its limit, as ha-design.md lists them. The
random simulations of tests/ha show that each is necessary."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import messages, quorum, safety
from saltvirt.ha.model.messages import FenceVote, GuestStatus, Heartbeat, HostState, LeaderMessage
from saltvirt.ha.model.policy import HaPolicy, Terms
from saltvirt.ha.model.registry import GuestLocation, HaGuestRecord, HostRecord

POLICY = HaPolicy(feed_lease_s=8, watchdog_s=10, lead_lease_s=6, suspect_s=6, max_fences=2)
TWO, THREE, FOUR, FIVE = (tuple(f"h{number}" for number in range(many)) for many in (2, 3, 4, 5))


@pytest.mark.parametrize(
    "members, alone, needed, peers",
    [
        (("h0",), False, 1, 0), (("h0",), True, 1, 0),
        (TWO, False, 2, 1), (TWO, True, 2, 1),
        (THREE, False, 2, 1), (THREE, True, 2, 1),
        (FOUR, False, 3, 2), (FOUR, True, 3, 2),
        (FIVE, False, 3, 2), (FIVE, True, 3, 2),
    ],
)  # fmt: skip
def test_how_many_are_a_majority(members, alone, needed, peers):
    assert quorum.majority(members, alone) == needed
    assert quorum.peers_needed(members) == peers


@pytest.mark.parametrize(
    "hosts, members, alone, enough",
    [
        ((), TWO, True, False),
        (("h0",), TWO, True, True),  # with the voice of the one master
        (("h0",), TWO, False, False),
        (("h0", "h1"), TWO, False, True),
        (("h0", "h0"), THREE, True, False),
        (("h0", "stranger"), THREE, True, False),
        (("h0", "h2"), THREE, True, True),
        (("h0", "h1"), FOUR, True, False),
        (("h0", "h1", "h3"), FOUR, True, True),
    ],
)
def test_a_majority_is_of_members_each_counted_once(hosts, members, alone, enough):
    assert safety.is_enough(hosts, members, alone) is enough


@pytest.mark.parametrize(
    "peers, members, enough",
    [(0, ("h0",), False), (1, ("h0",), False), (0, TWO, False), (1, TWO, True), (0, THREE, False),
     (1, THREE, True), (1, FOUR, False), (2, FOUR, True), (3, FOUR, True), (0, (), False)],
)  # fmt: skip
def test_peers_acknowledge_a_host_when_they_are_a_majority_with_it(peers, members, enough):
    assert safety.enough_acknowledge(peers, members) is enough


@pytest.mark.parametrize("at, holds", [(None, False), (92, False), (92.1, True), (100, True)])
def test_a_lease_holds_so_long_after_the_beat_was_sent(at, holds):
    assert safety.lease_holds(at, 100, 8) is holds


@pytest.mark.parametrize(
    "promise, boot, may",
    [(None, 1, True), (FenceVote(3, 1, 1), 3, False), (FenceVote(3, 1, 1), 4, True),
     (FenceVote(3, 1, 1), 2, False)],
)  # fmt: skip
def test_a_promise_not_to_acknowledge_ends_with_the_boot(promise, boot, may):
    assert safety.may_acknowledge(promise, boot) is may


@pytest.mark.parametrize(
    "acknowledged, is_over, may", [(0, False, False), (1, False, True), (0, True, True)]
)
def test_a_watchdog_is_put_at_rest_when_enough_know_or_nothing_runs(acknowledged, is_over, may):
    assert safety.may_disarm(acknowledged, THREE, is_over) is may


@pytest.mark.parametrize(
    "armed, works, lease, must",
    [(True, False, False, True), (False, False, False, False), (True, True, False, False),
     (True, False, True, False)],
)  # fmt: skip
def test_guests_are_killed_where_the_watchdog_broke_unseen(armed, works, lease, must):
    assert safety.must_kill(armed, works, lease) is must


@pytest.mark.parametrize("boot, given_up", [(2, True), (3, False), (4, False)])
def test_a_boot_before_the_one_that_counts_is_given_up(boot, given_up):
    assert safety.is_given_up(HostRecord(dead_before=3), boot) is given_up


@pytest.mark.parametrize("silent_s, missed", [(5.9, False), (6, True), (7, True)])
def test_who_has_not_heard_a_host_for_so_long_counts(silent_s, missed):
    assert safety.does_not_hear(silent_s, POLICY) is missed


@pytest.mark.parametrize(
    "asked, granted_to, may",
    [(6, "m1", False), (7, "m1", True), (7, "m2", False), (8, "m2", True), (6, "m2", False)],
)
def test_the_lead_is_granted_to_one_master_in_a_term(asked, granted_to, may):
    assert safety.may_grant(LeaderMessage("m1", asked, 1), 7, granted_to) is may


@pytest.mark.parametrize(
    "leader, granted_s, over",
    [("", 0, True), ("m1", 0, True), ("m2", 5.9, False), ("m2", 6, True), ("m2", 9, True)],
)
def test_a_lead_is_over_for_others_when_its_time_has_passed(leader, granted_s, over):
    assert (
        safety.lead_is_over(LeaderMessage("m1", 1, 1), leader, granted_s, POLICY.lead_lease_s)
        is over
    )


OWN = HaGuestRecord(host="h1", boot=4, run=True, epoch=7, locations=(GuestLocation("h1", 4),))


@pytest.mark.parametrize(
    "change, lease, tried, may",
    [
        ({}, True, 6, True),
        ({"locations": ()}, True, 6, True),
        ({}, False, 6, False),
        ({}, True, 7, False),
        ({}, True, 8, False),
        ({"run": False}, True, 6, False),
        ({"host": "h2"}, True, 6, False),
        ({"boot": 3}, True, 6, False),
        ({"locations": (GuestLocation("h1", 4), GuestLocation("h2", 1))}, True, 6, False),
        ({"locations": (GuestLocation("h2", 1),)}, True, 6, False),
    ],
)
def test_a_host_starts_what_is_its_own_and_can_run_nowhere_else_once(change, lease, tried, may):
    assert safety.may_start(replace(OWN, **change), "h1", 4, lease, tried) is may


def test_a_master_leads_so_long_after_it_asked():
    assert not safety.leads(None, 0, POLICY)
    assert safety.leads(0, POLICY.lead_s - 0.01, POLICY)
    assert not safety.leads(0, POLICY.lead_s, POLICY)
    assert safety.leads(100, 101, POLICY)
    assert POLICY.lead_s * POLICY.drift < POLICY.lead_lease_s


@pytest.mark.parametrize(
    "fencing, leading, alone, may",
    [(False, True, False, True), (False, False, True, True), (False, False, False, False),
     (True, True, False, False), (True, False, True, False), (True, True, True, False)],
)  # fmt: skip
def test_a_master_acknowledges_whom_it_has_not_given_up(fencing, leading, alone, may):
    assert safety.may_master_acknowledge(fencing, leading, alone) is may


@pytest.mark.parametrize(
    "fenced, left", [((), True), (("h2",), True), (("h2", "h3"), False), (("h1", "h2"), True)]
)
def test_so_many_hosts_are_given_up_and_no_more(fenced, left):
    assert safety.fences_left("h1", fenced, POLICY) is left


@pytest.mark.parametrize("freeze", [True, False])
def test_a_host_whose_guests_wait_is_at_rest(freeze):
    assert safety.is_at_rest(HostState(freeze=freeze)) is freeze


@pytest.mark.parametrize(
    "outcome, attempt, proves",
    [("off", "7.1.2", True), ("on", "7.1.2", False), ("", "7.1.2", False), ("off", "7.2.1", False),
     ("off", "7.1", False)],
)  # fmt: skip
def test_a_fence_proves_what_it_saw_after_this_question(outcome, attempt, proves):
    assert safety.fence_proves(outcome, attempt, "7.1") is proves


ARMED = HostState(boot=4, armed=True, watchdog_s=10)


@pytest.mark.parametrize(
    "promised_s, after_s, change, proves",
    [
        (0, 0, {}, True),
        (0, 1, {}, True),
        (0, -0.01, {}, False),
        (1, 0, {}, False),
        (0, 0, {"boot": 3}, False),
        (0, 0, {"boot": 5}, False),
        (0, 0, {"armed": False}, False),
        (0, 0, {"watchdog_s": 11}, False),
    ],
)
def test_a_watchdog_has_fired_when_all_of_its_time_has_passed(promised_s, after_s, change, proves):
    now_s = POLICY.must_have_fired_s(10) + after_s
    assert safety.watchdog_proves(promised_s, now_s, replace(ARMED, **change), 4, POLICY) is proves


@pytest.mark.parametrize(
    "was, boot, proves", [(3, 4, True), (4, 4, False), (5, 4, False), (0, 4, False), (1, 2, True)]
)
def test_a_host_that_booted_again_runs_nothing_from_before(was, boot, proves):
    assert safety.boot_proves(GuestLocation("h1", was), boot) is proves


@pytest.mark.parametrize(
    "applied, state, released",
    [
        (7, None, True),
        (8, None, True),
        (6, None, False),
        (7, messages.OFF, True),
        (7, messages.CRASHED, True),
        *((9, state, False) for state in messages.ALIVE),
    ],
)
def test_a_guest_is_released_by_who_knows_that_it_is_not_his(applied, state, released):
    there = {"web1": GuestStatus(1, state)} if state else {}
    beat = Heartbeat("h1", 4, 1, applied=applied, guests=there)
    assert safety.is_released(HaGuestRecord(changed=7), "web1", beat) is released


@pytest.mark.parametrize("boot, gone", [(2, True), (3, False), (4, False)])
def test_what_was_proven_holds_for_the_boots_before(boot, gone):
    assert safety.is_gone(GuestLocation("h1", boot), HostRecord(dead_before=3)) is gone


@pytest.mark.parametrize(
    "boot, phase, over",
    [(4, messages.SHUT_DOWN, True), (3, messages.SHUT_DOWN, False), (4, messages.LEAVING, False)],
)
def test_a_boot_is_over_by_the_hosts_own_word(boot, phase, over):
    assert safety.is_shut_down(GuestLocation("h1", 4), HostState(boot=boot, phase=phase)) is over


@pytest.mark.parametrize("places", [(), (GuestLocation("h1", 4),)])
def test_a_guest_that_may_run_somewhere_gets_no_other_place(places):
    assert safety.may_place(HaGuestRecord(locations=places)) is (not places)


@pytest.mark.parametrize(
    "taker, lease, proves",
    [("h1", 7, True), ("h2", 7, False), ("h1", 6, False), ("h1", 8, False), ("", None, False)],
)
def test_a_lease_proves_where_it_was_got_for_this_question(taker, lease, proves):
    beat = Heartbeat("h1", 4, 1, leases={} if lease is None else {"web1": lease})
    record = HaGuestRecord(changed=7, taker=taker)
    assert safety.lease_proves(record, "web1", beat) is proves


# -- what was announced, and who is believed -------------------------------------------------------


@pytest.mark.parametrize(
    "old_s, new_s, acknowledged, goes_by_s",
    [
        (None, 30, 0, 30),  # the first in this boot
        (8, 30, 0, 8), (8, 30, 1, 30),  # longer: once enough know
        (30, 8, 0, 8), (30, 8, 1, 8),  # shorter: at once
        (8, 8, 0, 8),
    ],
)  # fmt: skip
def test_a_host_goes_by_a_longer_time_when_enough_know_of_it(old_s, new_s, acknowledged, goes_by_s):
    assert safety.announced_s(old_s, new_s, acknowledged, THREE) == goes_by_s


TERMS = POLICY.terms("program")


@pytest.mark.parametrize(
    "terms, alike",
    [
        (TERMS, True),
        (POLICY.terms("another"), False),
        (replace(POLICY, feed_lease_s=30).terms("program"), False),
        (replace(POLICY, margin_s=4).terms("program"), False),
        (replace(POLICY, stable_s=4).terms("program"), True),  # no proof rests on it
        (Terms(), False),
    ],
)
def test_a_watchdog_proves_something_on_the_leaders_own_terms_alone(terms, alike):
    assert safety.is_on_same_terms(HostState(terms=terms), TERMS) is alike


@pytest.mark.parametrize(
    "tellers, members, enough",
    [
        (("h1",), THREE, False), (("h1", "h2"), THREE, True), (("h1", "stranger"), THREE, False),
        (("h1",), TWO, False), (("h1", "h2"), FIVE, False), (("h1", "h2", "h3"), FIVE, True),
    ],
)  # fmt: skip
def test_hosts_are_believed_of_another_one_when_they_are_a_majority(tellers, members, enough):
    assert safety.may_believe(tellers, members) is enough


@pytest.mark.parametrize(
    "told, watchdog_s, fired_s",
    [({}, 10, 8 + 20), ({"feed_lease_s": 30}, 10, 30 + 20), ({}, 40, 8 + 80),
     ({"feed_lease_s": 2}, 2, 8 + 20)],
)  # fmt: skip
def test_of_each_time_the_longer_one_counts(told, watchdog_s, fired_s):
    policy = replace(POLICY, clock_drift=0, margin_s=0)
    assert policy.must_have_fired_s(watchdog_s, replace(policy, **told).terms("")) == fired_s
    slow = replace(policy, clock_drift=0.2).terms("")
    assert policy.must_have_fired_s(10, slow) == pytest.approx(28 * 1.5)
    stands_still = replace(slow, clock_drift=1.0)
    assert policy.must_have_fired_s(10, stands_still) == float("inf")


def test_a_lead_ends_by_the_shortest_time_of_those_who_granted_it():
    short, drifts = replace(POLICY, lead_lease_s=4), replace(POLICY, clock_drift=0.2)
    granted = [short.terms(""), drifts.terms(""), Terms()]
    assert POLICY.lead_by([]) == POLICY.lead_by([Terms()]) == POLICY
    assert POLICY.lead_by(granted) == replace(POLICY, lead_lease_s=4, clock_drift=0.2)
