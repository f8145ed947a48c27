"""Election: candidates, terms, the leader, and what it knows before it decides."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import leadership
from saltvirt.ha.model.registry import Registry
from saltvirt.ha.model.view import MasterState, SavedMasterState
from tests.unit.ha.model import made

NOW_S = made.NOW_S
MASTERS = ("m1", "m2", "m3")
FIVE = ("h1", "h2", "h3", "h4", "h5")


def heard(*beats, **changes):
    """A View: these beats and no others have come."""
    return replace(made.seen(), beats={one.beat.host: one for one in beats}, **changes)


# -- may he ask ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leader, granted_s, heard_s, may",
    [
        ("", 0, 5.9, True),
        ("", 0, 6, False),  # not heard for so long
        ("m2", 0, 5.9, True),
        ("m1", 0, 5.9, False),
        ("m1", 1.9, 5, False),
        ("m1", 2, 5, True),
        ("m1", 20, 6, False),
    ],
)
def test_the_lead_is_asked_for_where_a_majority_is_heard_and_is_free(
    leader, granted_s, heard_s, may
):
    """Of three hosts one is free, one is silent, and the third decides."""
    third = made.beat("h2", NOW_S - heard_s, leader=leader, granted_s=granted_s)
    seen = heard(made.beat("h1"), third, masters=MASTERS)
    assert leadership.may_ask(MasterState("m2"), seen, NOW_S) is may


@pytest.mark.parametrize("master, wait_s", [("m1", 6), ("m2", 7), ("m3", 8)])
def test_masters_ask_one_after_the_other_when_a_lead_has_ended(master, wait_s):
    for granted_s, may in ((wait_s - 0.1, False), (wait_s, True)):
        beats = [made.beat(host, NOW_S, leader="m4", granted_s=granted_s) for host in made.HOSTS]
        seen = heard(*beats, masters=(*MASTERS, "m4"))
        assert leadership.may_ask(MasterState(master), seen, NOW_S) is may


@pytest.mark.parametrize(
    "agreed, configured, may",
    [(made.HOSTS, FIVE, True), (FIVE, made.HOSTS, False), ((), made.HOSTS, True),
     ((), FIVE, False)],
)  # fmt: skip
def test_a_majority_is_of_the_members_that_were_agreed_upon(agreed, configured, may):
    """Those of the configuration count until there are any."""
    state = MasterState("m1", SavedMasterState(registry=Registry(members=agreed)))
    seen = heard(made.beat("h1"), made.beat("h2"), members=configured)
    assert leadership.may_ask(state, seen, NOW_S) is may


# -- in which term ---------------------------------------------------------------------------------

FREE, BUSY = 60, 0


def granted(host, term, leader, granted_s=FREE):
    return made.beat(host, term=term, leader=leader, granted_s=granted_s)


@pytest.mark.parametrize(
    "own, seq, beats, term",
    [
        # what it has asked for in this term goes on
        (4, 7, [("h1", 3, "m1"), ("h2", 3, "m1")], 4),
        (4, 1, [("h1", 3, "m1"), ("h2", 3, "m1")], 4),
        (4, 7, [("h1", 4, "m2"), ("h2", 4, "m2")], 4),
        (4, 1, [("h1", 4, "m2"), ("h2", 3, "m3")], 4),
        # a later one was led, or the same by another, and that lead is over
        (4, 7, [("h1", 4, "m1"), ("h2", 4, "m2")], 7),
        (4, 7, [("h1", 6, "m3"), ("h2", 4, "m2")], 7),
        (4, 7, [("h1", 7, "m3"), ("h2", 4, "m2")], 10),
        # it is not over
        (4, 7, [("h1", 6, "m3", BUSY), ("h2", 6, "m3", BUSY)], 4),
        (4, 1, [("h1", 6, "m3", BUSY), ("h2", 6, "m3", BUSY)], 4),
        # a master that begins anew uses no term again, whoever leads
        (4, 0, [("h1", 3, "m1"), ("h2", 4, "m2")], 7),
        (4, 0, [("h1", 6, "m3", BUSY), ("h2", 6, "m3", BUSY)], 7),
        (4, 0, [], 7),
        # of one that knows none, a majority does
        (0, 0, [], 0),
        (0, 0, [("h1", 0, "")], 0),
        (0, 7, [("h1", 0, "")], 0),
        (0, 0, [("h1", 0, ""), ("h2", 0, "")], 1),
        (0, 7, [("h1", 0, ""), ("h2", 0, "")], 1),
        # it has lost its disk, and may have asked for later ones that these have not heard of
        (0, 0, [("h1", 5, "m3"), ("h2", 6, "m1")], 1006),
    ],
)
def test_a_term_is_no_other_masters_and_none_is_used_twice(own, seq, beats, term):
    """m2 of three masters: its terms are 1, 4, 7, 10, ..."""
    state = MasterState("m2", SavedMasterState(own), seq=seq)
    seen = heard(*(granted(*one) for one in beats), masters=MASTERS)
    assert leadership.update(state, seen, NOW_S).saved.term == term


def test_in_a_new_term_nothing_counts_that_was_granted_or_kept_in_the_one_before():
    begun = {"sent_s": {7: NOW_S - 1}, "voted_s": {"h3": (4, 900)}, "ran_s": {"web1": (1, 900)}}
    before = made.master(seq=7, **begun)
    seen = heard(*(granted(host, 2, "m2") for host in made.HOSTS), masters=("m0", "m1"))
    kept = replace(before.saved, term=3)
    assert leadership.update(before, seen, NOW_S) == MasterState("m1", kept, term_s=NOW_S)


@pytest.mark.parametrize(
    "leading_s, term_s, rises",
    [(900, None, True), (900, NOW_S - 94, False), (900, NOW_S - 95, True),
     (None, NOW_S - 5.9, False), (None, NOW_S - 6, True)],
)  # fmt: skip
def test_hosts_that_tell_a_later_term_in_each_beat_end_no_lead(leading_s, term_s, rises):
    """One host kept all masters from leading: each of its beats told a later term."""
    state = made.master(seq=7, leading_s=leading_s, term_s=term_s)
    seen = heard(granted("h1", 1, "m1"), granted("h2", 1, "m1"), granted("h3", 9, ""))
    after = leadership.update(state, seen, NOW_S)
    assert (after.saved.term == 10, after.term_s == NOW_S) == (rises, rises)


@pytest.mark.parametrize("own", [0, 5])
def test_a_term_rises_by_so_much_at_most(own):
    """A term near 2**63 could be told to no host, and read from no file, any more."""
    beats = [granted("h1", 2**63 - 1, "m9"), granted("h2", 0, ""), granted("h3", 0, "")]
    after = leadership.update(MasterState("m1", SavedMasterState(own)), heard(*beats), NOW_S)
    assert own < after.saved.term <= own + leadership.HIGHER + leadership.FORGOTTEN


# -- does he lead ----------------------------------------------------------------------------------


def granting(host, claim=7, **changes):
    return made.beat(host, **{"term": 1, "leader": "m1", "claim": claim, **changes})


def asked(calls, **changes):
    """A master that has sent these calls: number to how long ago."""
    return made.master(seq=9, sent_s={seq: NOW_S - ago for seq, ago in calls.items()}, **changes)


@pytest.mark.parametrize(
    "calls, claims, leads",
    [
        ({7: 1}, {"h1": 7}, False),
        ({7: 1}, {"h1": 7, "h2": 7}, True),
        ({7: 5.3}, {"h1": 7, "h2": 7}, True),
        ({7: 5.4}, {"h1": 7, "h2": 7}, False),
        # a later call is an answer to an earlier one as well, not the other way round
        ({6: 5.3, 7: 1}, {"h1": 7, "h2": 6}, True),
        ({6: 5.4, 7: 1}, {"h1": 7, "h2": 6}, False),
        ({6: 7, 7: 1, 8: 1}, {"h1": 8, "h2": 7, "h3": 6}, True),
        ({6: 1, 7: 7, 8: 1}, {"h1": 8, "h2": 7, "h3": 6}, False),
        ({8: 1}, {"h1": 7, "h2": 7}, False),  # nobody knows any more when it was sent
    ],
)
def test_he_leads_by_the_last_call_that_a_majority_answers(calls, claims, leads):
    seen = heard(*(granting(*one) for one in claims.items()))
    assert (leadership.update(asked(calls), seen, NOW_S).leading_s is not None) is leads


@pytest.mark.parametrize(
    "other, leads", [({}, True), ({"term": 0}, False), ({"leader": "m2"}, False)]
)
def test_a_lead_that_was_granted_in_another_term_or_to_another_master_does_not_count(other, leads):
    seen = heard(granting("h1"), granting("h2", **other))
    assert (leadership.update(asked({7: 1}), seen, NOW_S).leading_s is not None) is leads


@pytest.mark.parametrize(
    "told", [{"lead_lease_s": 0.0}, {"clock_drift": 1.0}, {"clock_drift": 5.0}]
)
def test_one_host_by_its_terms_ends_the_lead_for_itself_alone(told):
    """One host kept each master from leading, or ended each of its decisions with a traceback."""
    terms = made.seen().policy.terms("")
    other = replace(terms, **told)
    for hosts, leads in ((made.HOSTS[:1], True), (made.HOSTS[:2], False)):
        beats = [granting(host, terms=other if host in hosts else terms) for host in made.HOSTS]
        after = leadership.update(asked({7: 1}), heard(*beats), NOW_S)
        assert (after.leading_s is not None) is leads


def test_who_leads_knows_since_when():
    seen = heard(*map(granting, made.HOSTS))
    assert leadership.update(asked({7: 1}, leading_s=900), seen, NOW_S).leading_s == 900
    assert leadership.update(asked({7: 1}, leading_s=None), seen, NOW_S).leading_s == NOW_S


def test_who_leads_no_more_must_see_all_anew_that_takes_its_time():
    """The rest is known still, so that he can go on when the lead is granted again."""
    state = asked({7: 6}, voted_s={"h3": (4, 900)}, ran_s={"web1": (1, 900)})
    lost = leadership.update(state, heard(*map(granting, made.HOSTS)), NOW_S)
    assert lost == replace(state, leading_s=None, voted_s={}, ran_s={})


# -- what he knows ---------------------------------------------------------------------------------

OLD, LAST, LATER = (
    Registry(term, version, members=made.HOSTS) for term, version in ((4, 6), (4, 7), (5, 2))
)


@pytest.mark.parametrize(
    "own, h1, h2, found",
    [
        # each host: the registry that it keeps, and the one that it sends along
        (LAST, (LAST, None), (LAST, None), LAST),
        (LAST, (OLD, OLD), (OLD, None), LAST),
        (OLD, (LAST, LAST), (OLD, None), LAST),
        (OLD, (OLD, OLD), (LAST, LAST), LAST),
        (LAST, (LAST, None), (LATER, LATER), LATER),
        # one keeps a later one, and has not sent it along yet
        (OLD, (LAST, None), (OLD, None), None),
        (OLD, (LAST, None), (OLD, OLD), None),
        (LAST, (LATER, LAST), (LAST, None), None),
    ],
)
def test_a_new_leader_waits_for_the_last_registry_that_may_have_been_acted_by(own, h1, h2, found):
    beats = [
        granting(host, term=9, stored_term=keeps.term, stored=keeps.version, registry=sent)
        for host, (keeps, sent) in (("h1", h1), ("h2", h2))
    ]
    before = asked({7: 1}, saved=SavedMasterState(9, own), ready=False, committed=3)
    beats.append(made.beat("h3", stored_term=8, stored=1))  # it has not granted the lead
    after = leadership.update(before, heard(*beats, members=FIVE), NOW_S)
    if found is None:
        assert after == before
    else:
        taken = replace(found, term=9, version=found.version + 1)
        kept = replace(before.saved, registry=taken)
        assert after == replace(before, saved=kept, ready=True, committed=0)


@pytest.mark.parametrize(
    "leading_s, h1, h2, found",
    [
        (NOW_S - 5, OLD, LAST, None),
        (NOW_S - 6, OLD, LAST, LAST),
        # those without it, and those who sent what they keep, are no majority
        (NOW_S - 6, LATER, LAST, None),
        (NOW_S - 6, LATER, LATER, None),
    ],
)
def test_a_registry_that_is_told_of_and_never_sent_is_not_waited_for_without_end(
    leading_s, h1, h2, found
):
    """Each registry that was acted by is kept by a majority: another host sends it."""
    beats = [
        granting("h1", term=9, stored_term=h1.term, stored=h1.version),
        granting("h2", term=9, stored_term=h2.term, stored=h2.version, registry=LAST),
        granting("h3", term=9, stored_term=8, stored=2**60),
    ]
    before = asked({7: 1}, saved=SavedMasterState(9, OLD), ready=False, leading_s=leading_s)
    after = leadership.update(before, heard(*beats), NOW_S)
    taken = after.saved.registry
    assert after.ready is bool(found)
    assert (taken.version - 1 if found else taken.version) == (found or OLD).version


def test_the_first_registry_has_the_members_of_the_configuration():
    before = asked({7: 1}, saved=SavedMasterState(1), ready=False)
    seen = heard(*(granting(host, stored_term=0, stored=0) for host in made.HOSTS))
    assert leadership.update(before, seen, NOW_S).saved.registry == Registry(
        1, 1, members=made.HOSTS
    )


def test_who_was_fenced_before_counts_as_fenced_now():
    fenced = replace(LATER, fences=("h2", "h3"))
    before = asked({7: 1}, saved=SavedMasterState(9, fenced), ready=False, fenced_s={"h1": 5})
    seen = heard(*(granting(host, term=9) for host in made.HOSTS))
    assert leadership.update(before, seen, NOW_S).fenced_s == {"h2": NOW_S, "h3": NOW_S}


def test_who_has_read_the_registry_does_not_read_it_again():
    sent = Registry(1, 8, members=made.HOSTS)
    seen = heard(*(granting(host, stored=8, registry=sent) for host in made.HOSTS))
    assert leadership.update(asked({7: 1}), seen, NOW_S).saved == asked({7: 1}).saved


@pytest.mark.parametrize(
    "stored, before, committed",
    [
        ({"h1": 5}, 0, 0),
        ({"h1": 5, "h2": 5}, 0, 5),
        ({"h1": 5, "h2": 4}, 0, 4),
        ({"h1": 5, "h2": 5, "h3": 4}, 0, 5),
        ({"h1": 6, "h2": 5, "h3": 4}, 0, 5),
        ({"h1": 4, "h2": 4, "h3": 4}, 5, 5),  # an answer that came late
    ],
)
def test_it_counts_up_to_which_version_a_majority_keeps_the_registry(stored, before, committed):
    seen = heard(*(granting(host, stored=version) for host, version in stored.items()))
    assert leadership.update(asked({7: 1}, committed=before), seen, NOW_S).committed == committed


@pytest.mark.parametrize("other, committed", [({}, 6), ({"stored_term": 0}, 5), ({"term": 0}, 5)])
def test_what_is_kept_of_another_term_does_not_count(other, committed):
    keeps = granting("h1", stored=6), granting("h2", stored=5), granting("h3", stored=6, **other)
    assert (
        leadership.update(asked({7: 1}, committed=0), heard(*keeps), NOW_S).committed == committed
    )


@pytest.mark.parametrize(
    "ready, committed, settled",
    [(True, 5, True), (True, 4, False), (True, 6, False), (False, 5, False)],
)
def test_the_next_is_decided_when_enough_keep_the_last(ready, committed, settled):
    kept = SavedMasterState(registry=made.registry(version=5))
    assert (
        leadership.is_settled(made.master(saved=kept, ready=ready, committed=committed)) is settled
    )
