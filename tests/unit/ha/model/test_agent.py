"""One step of an agent: acknowledgements, the lead, votes, the registry, the time for which it may
feed its watchdog, and its messages."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import agent, agent_view, committed_config, messages
from saltvirt.ha.model.agent_view import REBOOT, SHUTDOWN, STOP
from saltvirt.ha.model.messages import FenceVote, GuestStatus, HeartbeatAck, HostState
from saltvirt.ha.model.policy import CONDITIONAL, FAILOVER, FREEZE, MIGRATE
from saltvirt.ha.model.registry import SUSPECTED, CommittedConfig, HostRecord
from tests.unit.ha.model import made

NOW_S, TWO = made.NOW_S, ("h1", "h2")
FIVE = ("h1", "h2", "h3", "h4", "h5")


def step(state=None, sees=None, **policy):
    """What h1 does now."""
    policy = replace(made.POLICY, **policy)
    return agent.step(state or made.agent(), sees or made.agent_sees(), NOW_S, policy)


def kept_after(kept, *calls):
    state = made.agent(kept, granted_s=kept.pop("granted_s", NOW_S - 1))
    sees = made.agent_sees(messages={one.message.master: one for one in calls})
    return step(state, sees).state


def heard(*beats, **changes):
    """An AgentView: these beats and no others have come by the network."""
    return made.agent_sees(beats={one.beat.host: one for one in beats}, **changes)


def acked(seq, boot=1):
    """What acknowledges that beat of h1."""
    return {"h1": HeartbeatAck(boot, seq)}


# -- whom it acknowledges --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known, network, stored, boot_seq",
    [
        (None, (1, 7), None, (1, 7)),
        (None, None, (1, 7), (1, 7)),
        (None, (1, 7), (1, 8), (1, 8)),
        (None, (1, 8), (1, 7), (1, 8)),
        ((1, 7), (1, 8), None, (1, 8)),
        ((1, 7), (1, 6), None, (1, 7)),
        ((1, 7), (2, 3), None, (2, 3)),
        ((2, 3), (1, 7), None, (2, 3)),
        ((1, 7), None, None, (1, 7)),
    ],
)
def test_the_last_beat_of_a_peer_is_acknowledged_and_what_it_said_is_kept(
    known, network, stored, boot_seq
):
    def said(boot, seq, **changes):
        return made.beat("h2", boot=boot, seq=seq, watchdog_s=100 * boot + seq, **changes)

    def sources(of):
        return {"h2": said(*of)} if of else {}

    kept = {"host_states": {"h2": said(*known).beat.host_state} if known else {}}
    before = made.agent(kept, acks={"h2": HeartbeatAck(*known)} if known else {})
    sees = made.agent_sees(beats=sources(network), stored=sources(stored))
    found = step(before, sees)
    assert found.beat.acks == found.state.acks == {"h2": HeartbeatAck(*boot_seq)}
    assert found.state.saved.host_states == {"h2": said(*boot_seq).beat.host_state}


def test_what_a_peer_said_last_is_kept_over_the_agents_restart():
    """An older beat that is still on a pool changes nothing of it."""
    last = HostState(1, 9, phase=messages.SHUT_DOWN)
    before = made.agent({"host_states": {"h2": last}})
    found = step(before, made.agent_sees(beats={}, stored={"h2": made.beat("h2", seq=7)}))
    assert found.state.saved.host_states == {"h2": last}


@pytest.mark.parametrize("boot, acks", [(1, {}), (2, {}), (3, {"h2": HeartbeatAck(3, 7)})])
def test_whom_it_has_promised_to_give_up_is_not_acknowledged_before_it_boots_again(boot, acks):
    """By whatever way its beat comes; nor is what that says kept."""
    before = made.agent({"fence_votes": {"h2": FenceVote(2, 1, 4)}})
    said = {"h2": made.beat("h2", boot=boot)}
    for ways in ({"beats": said}, {"beats": {}, "stored": said}):
        found = step(before, made.agent_sees(messages={}, **ways))
        assert found.beat.acks == found.state.acks == acks
        assert list(found.state.saved.host_states) == list(acks)


def test_it_does_not_acknowledge_what_it_heard_before_it_promised():
    ballot = {"h2": FenceVote(1, 1, 4)}
    before = made.agent(acks={"h2": HeartbeatAck(1, 7)}, since_s=NOW_S - 10)
    sees = heard(messages={"m1": made.call(leading=True, ballots=ballot)})
    found = step(before, sees)
    assert found.beat.fence_votes == ballot
    assert found.beat.acks == {}


@pytest.mark.parametrize("before, at_s, since", [({}, 990, 990), ({"h2": 980}, 990, 990),
                                                 ({"h2": 995}, 990, 995)])  # fmt: skip
def test_it_knows_when_it_heard_a_peer_last_by_the_network(before, at_s, since):
    sees = heard(made.beat("h2", at_s), stored={"h3": made.beat("h3")})
    assert step(made.agent(heard_s=before), sees).state.heard_s == {"h2": since}


# -- to whom it grants the lead --------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, granted",
    [
        # (master, term, seq); m1 has had the lead in term 4 by call 7 for 5.9 s
        (("m1", 4, 8), True),
        (("m1", 4, 7), False),  # it was answered before
        (("m1", 4, 6), False),
        (("m1", 3, 9), False),
        (("m1", 5, 1), True),
        (("m2", 4, 9), False),
        (("m2", 5, 9), False),
    ],
)
def test_a_lead_is_granted_once_for_each_call(call, granted):
    before = {"term": 4, "leader": "m1", "claim": 7, "granted_s": NOW_S - 5.9}
    after = kept_after(before, made.call(call[0], term=call[1], seq=call[2]))
    master, term, seq = call if granted else ("m1", 4, 7)
    assert (after.saved.leader, after.saved.term, after.saved.claim) == (master, term, seq)
    assert after.granted_s == (NOW_S if granted else NOW_S - 5.9)


@pytest.mark.parametrize("granted_s, leader", [(NOW_S - 5.9, "m1"), (NOW_S - 6, "m2")])
def test_another_master_gets_the_lead_in_a_later_term_when_the_time_of_the_first_has_passed(
    granted_s, leader
):
    before = {"term": 4, "leader": "m1", "claim": 7, "granted_s": granted_s}
    after = kept_after(before, made.call("m2", term=5, seq=1))
    assert after.saved.leader == leader


def test_a_lead_lasts_as_long_as_it_was_granted_for_whatever_the_settings_say_since():
    """An agent that began anew with a shorter time granted the lead to a second master."""
    before = made.agent({"term": 4, "leader": "m1", "claim": 7}, lead_lease_s=20)
    sees = made.agent_sees(messages={"m2": made.call("m2", term=5, seq=1)})
    for ago_s, leader, lease_s in ((19.9, "m1", 20), (20, "m2", made.POLICY.lead_lease_s)):
        after = step(before.after_restart(NOW_S - ago_s), sees).state
        assert (after.saved.leader, after.lead_lease_s) == (leader, lease_s)


def test_who_does_not_ask_gets_no_lead():
    before = {"term": 4, "leader": "m1", "claim": 7}
    after = kept_after(before, made.call("m1", term=5, seq=8, asks=False))
    assert (after.saved.term, after.saved.claim) == (4, 7)


def test_of_two_calls_the_one_that_may_not_be_granted_does_not_hide_the_other():
    before = {"term": 4, "leader": "m1", "claim": 7}
    refused = [made.call("m0", asks=False, term=5), made.call("m2", term=3),
               made.call("m3", term=5)]  # fmt: skip
    after = kept_after(before, *refused, made.call("m1", term=4, seq=8))
    assert after.saved.claim == 8


# -- what it promises ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "heard_s, since_s, promises",
    [
        ({"h2": NOW_S - 5.9}, 0, False),
        ({"h2": NOW_S - 6}, 0, True),
        ({}, NOW_S - 5.9, False),  # it began a moment ago, and may not have heard it yet
        ({}, NOW_S - 6, True),
    ],
)
def test_it_promises_to_give_up_only_whom_it_has_not_heard_for_long_itself(
    heard_s, since_s, promises
):
    asked = {"h2": FenceVote(1, 1, 4)}
    sees = heard(messages={"m1": made.call(leading=True, ballots=asked)})
    found = step(made.agent(heard_s=heard_s, since_s=since_s), sees)
    assert found.state.saved.fence_votes == found.beat.fence_votes == (asked if promises else {})


@pytest.mark.parametrize(
    "acks, asked, promises",
    [
        ({}, 0, True),  # nobody has ever heard it
        ({"h2": HeartbeatAck(2, 7)}, 3, True),
        ({"h2": HeartbeatAck(2, 7)}, 2, True),
        ({"h2": HeartbeatAck(2, 7)}, 1, False),
    ],
)
def test_it_does_not_give_up_a_boot_when_it_knows_of_a_later_one(acks, asked, promises):
    """Where the leader does not know yet that the host has booted again."""
    ballots = {"h2": FenceVote(asked, 1, 4)}
    sees = heard(messages={"m1": made.call(leading=True, ballots=ballots)})
    found = step(made.agent(acks=acks, heard_s={"h2": 0}), sees)
    assert found.state.saved.fence_votes == (ballots if promises else {})


ASKED = FenceVote(1, 1, 4)


@pytest.mark.parametrize(
    "call, promises",
    [
        ({"ballots": {"h2": ASKED}}, {"h2": ASKED}),  # over its own restart, too
        ({"ballots": {"h2": replace(ASKED, ballot=9)}}, {}),
        ({"ballots": {}}, {}),
        ({"ballots": {}, "leading": False}, {"h2": ASKED}),
        ({"ballots": {}, "asks": False}, {"h2": ASKED}),
    ],
)
def test_a_promise_is_kept_until_the_leader_takes_it_back(call, promises):
    before = made.agent({"fence_votes": {"h2": ASKED}}, since_s=NOW_S)
    found = step(before, heard(messages={"m1": made.call(**{"leading": True, **call})}))
    assert found.state.saved.fence_votes == promises


# -- by which registry it acts ---------------------------------------------------------------------


def version(of, term=1):
    return made.registry(term=term, version=of)


@pytest.mark.parametrize(
    "pending, sent, committed, keeps, acts",
    [
        (5, None, 5, 5, 5),
        (5, 6, 5, 6, 5),
        (5, 6, 6, 6, 6),
        (6, None, 5, 6, 5),
        (6, None, 6, 6, 6),  # it came before, and is kept by enough now
        (6, 7, 6, 7, 6),
        (6, 8, 7, 8, 6),
        (7, 6, 7, 7, 7),  # one that came late
        (6, None, 9, 6, 6),
        (4, None, 9, 4, 5),
    ],
)
def test_a_registry_is_kept_when_it_comes_and_acted_by_when_enough_keep_it(
    pending, sent, committed, keeps, acts
):
    call = made.call(leading=True, registry=sent and version(sent), committed=committed)
    after = kept_after({"registry": version(5), "pending": version(pending)}, call).saved
    assert (after.pending, after.registry) == (version(keeps), version(acts))


@pytest.mark.parametrize(
    "pending, sent, keeps, acts",
    [
        # (version, term); the leader is in term 3
        ((6, 2), None, (6, 2), (5, 1)),  # nobody may ever have acted by it
        ((6, 2), (6, 3), (6, 3), (6, 3)),
        ((9, 2), (6, 3), (6, 3), (6, 3)),
    ],
)
def test_what_is_kept_of_an_earlier_term_is_never_acted_by(pending, sent, keeps, acts):
    registry = sent and version(*sent)
    call = made.call(term=3, leading=True, registry=registry, committed=9)
    after = kept_after(
        {"term": 3, "registry": version(5), "pending": version(*pending)}, call
    ).saved
    assert (after.pending, after.registry) == (version(*keeps), version(*acts))


def test_one_that_has_the_lead_not_yet_is_not_obeyed():
    call = made.call(leading=False, registry=version(6), committed=6)
    after = kept_after({}, call)
    assert (after.saved.pending, after.saved.registry) == (version(5), version(5))
    assert after.saved.claim == 7


# -- how long it may feed its watchdog -------------------------------------------------------------

SENT = {91: 991.0, 92: 992.0, 93: 993.0, 94: 994.0}


@pytest.mark.parametrize(
    "members, acks, master, before, lease_s",
    [
        (made.HOSTS, {}, None, None, None),
        (made.HOSTS, {}, None, 990, 990),
        (made.HOSTS, {}, acked(93), None, 993),
        (made.HOSTS, {}, acked(93), 990, 993),
        (made.HOSTS, {}, acked(93), 994, 994),  # an acknowledgement that came late
        (made.HOSTS, {}, acked(93, boot=2), None, None),
        (made.HOSTS, {}, acked(90), None, None),  # too long ago
        (made.HOSTS, {}, {"h2": HeartbeatAck(1, 93)}, None, None),
        (made.HOSTS, {"h2": 92}, None, None, 992),
        (made.HOSTS, {"h2": 92, "h3": 93}, acked(91), None, 993),
        (made.HOSTS, {"h2": 92, "h3": 93}, acked(94), None, 994),
        (FIVE, {"h2": 92}, None, None, None),
        (FIVE, {"h2": 92, "h3": 94, "h4": 91}, None, None, 992),
        (FIVE, {"h2": 92, "h3": 94, "h4": 90}, None, None, 992),
        (FIVE, {"h2": 92, "h3": 90, "h4": 90}, None, None, None),
        (("h1",), {"h2": 92}, None, None, None),
    ],
)
def test_the_lease_counts_from_when_the_beat_was_sent_that_enough_acknowledge(
    members, acks, master, before, lease_s
):
    state = made.agent(
        {"registry": made.registry(members=members)}, sent=dict(SENT), lease_from_s=before
    )
    calls = {"m2": made.call("m2", asks=False)}
    if master:
        calls["m1"] = made.call(acks=master)
    sees = heard(*(made.beat(host, acks=acked(seq)) for host, seq in acks.items()), messages=calls)
    assert step(state, sees).state.lease_from_s == lease_s


def test_it_remembers_when_its_beats_were_sent_for_as_long_as_a_lease_lasts():
    state = made.agent(seq=100, sent={91: NOW_S - 8, 92: NOW_S - 7.9})
    assert step(state).state.sent == {92: NOW_S - 7.9, 101: NOW_S}


@pytest.mark.parametrize("lease_from_s, fed", [(NOW_S - 7.9, True), (NOW_S - 8, False)])
def test_a_watchdog_is_fed_as_long_as_the_lease_lasts(lease_from_s, fed):
    state = made.agent({"registry": HAS_GUEST}, lease_from_s=lease_from_s)
    found = step(state, made.agent_sees(works=True, guests={"web1": made.RUNS}))
    assert [one.kind for one in found.actions] == ([agent_view.FEED] if fed else [])


# -- what it is about ------------------------------------------------------------------------------

HAS_GUEST = made.registry({"web1": made.record()})
RUNNING = {"web1": made.RUNS}


@pytest.mark.parametrize(
    "before, asked, guests, phase",
    [
        (messages.WORKING, "", {}, messages.WORKING),
        (messages.WORKING, STOP, RUNNING, messages.RESTING),
        (messages.WORKING, SHUTDOWN, RUNNING, messages.LEAVING),
        (messages.WORKING, REBOOT, RUNNING, messages.LEAVING),
        (messages.LEAVING, SHUTDOWN, {}, messages.SHUT_DOWN),
        (messages.LEAVING, REBOOT, {"web1": GuestStatus(1, messages.OFF)}, messages.SHUT_DOWN),
        (messages.RESTING, "", RUNNING, messages.WORKING),  # a new agent works on
        # nothing is taken back that others may have gone by
        (messages.SHUT_DOWN, "", {}, messages.SHUT_DOWN),
        (messages.SHUT_DOWN, SHUTDOWN, RUNNING, messages.SHUT_DOWN),
        (messages.SHUT_DOWN, STOP, {}, messages.SHUT_DOWN),
    ],
)
def test_what_it_says_that_it_is_about(before, asked, guests, phase):
    """And it knows by which beat it said so first."""
    found = step(
        made.agent(phase=before, phase_seq=90), made.agent_sees(request=asked, guests=guests)
    )
    assert found.beat.phase == found.state.phase == phase
    assert found.beat.seq == found.state.seq == 101
    assert found.state.phase_seq == (90 if phase == before else 101)


@pytest.mark.parametrize(
    "before, asked, since", [(None, SHUTDOWN, NOW_S), (980, STOP, 980), (980, "", None)]
)
def test_it_knows_since_when_it_is_asked_to_stop(before, asked, since):
    found = step(made.agent(stop_since_s=before), made.agent_sees(request=asked))
    assert found.state.stop_since_s == since


@pytest.mark.parametrize(
    "asked, policy, freeze, live",
    [
        ("", FREEZE, False, False),
        ("", MIGRATE, False, False),
        (STOP, FAILOVER, True, False),
        (STOP, MIGRATE, True, False),
        (SHUTDOWN, FREEZE, True, False),
        (REBOOT, FREEZE, True, False),
        (SHUTDOWN, CONDITIONAL, False, False),
        (REBOOT, CONDITIONAL, True, False),
        (SHUTDOWN, MIGRATE, False, True),
        (REBOOT, MIGRATE, False, True),
        (REBOOT, FAILOVER, False, False),
    ],
)
def test_it_says_what_becomes_of_its_guests_when_it_stops(asked, policy, freeze, live):
    beat = step(sees=made.agent_sees(request=asked, guests=RUNNING), shutdown_policy=policy).beat
    assert (beat.freeze, beat.live) == (freeze, live)


# -- who may count on its watchdog -----------------------------------------------------------------


@pytest.mark.parametrize(
    "needed, works, armed",
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_it_says_that_it_is_armed_while_its_watchdog_works_and_is_needed(needed, works, armed):
    state = made.agent({"registry": HAS_GUEST if needed else made.registry()})
    assert step(state, made.agent_sees(works=works)).beat.armed is armed


@pytest.mark.parametrize(
    "needed, works, before, acks, after",
    [
        # (believed, unpledged) before and after; beat 101 goes out now
        (True, True, (False, 0), 0, (True, 0)),
        (True, True, (True, 95), 95, (True, 0)),
        (False, False, (False, 0), 100, (False, 0)),
        # it says from now on that it is not, and waits for those who know it
        (False, True, (True, 0), 100, (True, 101)),
        (False, False, (True, 0), 100, (True, 101)),
        (True, False, (True, 0), 100, (True, 101)),
        (False, False, (True, 95), 94, (True, 95)),
        (False, False, (True, 95), 95, (False, 0)),
        # it is known, and the device is not at rest yet
        (False, True, (True, 95), 95, (True, 95)),
        # nobody was told that it is armed before it was needed no more
        (False, True, (False, 0), 100, (False, 101)),
        (False, True, (False, 95), 100, (False, 95)),
    ],
)
def test_others_may_count_on_a_watchdog_until_enough_know_that_it_is_at_rest(
    needed, works, before, acks, after
):
    believed, unpledged = before
    registry = HAS_GUEST if needed else made.registry()
    state = made.agent({"registry": registry}, believed=believed, unpledged=unpledged)
    sees = heard(made.beat("h2", acks=acked(acks)), works=works)
    found = step(state, sees).state
    assert (found.believed, found.unpledged) == after


# -- which guests were here ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, there, tried",
    [
        ({}, GuestStatus(4, messages.RUNNING), {"web1": 4}),
        ({}, GuestStatus(0, messages.RUNNING), {"web1": 0}),
        ({}, GuestStatus(4, messages.STOPPED), {"web1": 4}),
        ({}, GuestStatus(4, messages.OFF), {}),  # a definition
        ({"web1": 5}, GuestStatus(4, messages.RUNNING), {"web1": 5}),
        ({"web1": 3, "web2": 9}, GuestStatus(4, messages.RUNNING), {"web1": 4, "web2": 9}),
        ({"web1": 3}, None, {"web1": 3}),
    ],
)
def test_it_remembers_the_last_epoch_of_each_guest_that_was_here(before, there, tried):
    found = step(made.agent(tried=before), made.agent_sees(guests={"web1": there} if there else {}))
    assert found.state.tried == tried


def test_what_it_starts_it_has_tried():
    """And nothing else that it does to guests."""
    guests = {
        "web1": made.record(epoch=6),
        "web2": made.record("h2", epoch=3),
        "web3": made.record(epoch=5),
    }
    there = {"web2": GuestStatus(2, messages.RUNNING), "web3": GuestStatus(4, messages.RUNNING)}
    state = made.agent({"registry": made.registry(guests)}, tried={"web1": 5})
    found = step(state, made.agent_sees(guests=there))
    did = [(one.kind, one.guest) for one in found.actions]
    assert did == [("start", "web1"), ("kill", "web2"), ("adopt", "web3")]
    assert found.state.tried == {"web1": 6, "web2": 2, "web3": 4}
    assert state.tried == {"web1": 5}


@pytest.mark.parametrize(
    "host, tried, there, told",
    [
        ("h1", {"web1": 4}, None, GuestStatus(4, messages.STOPPED)),
        ("h1", {}, None, None),  # it was never here
        ("h2", {"web1": 4}, None, None),
        ("h1", {"web1": 4}, GuestStatus(4, messages.OFF), GuestStatus(4, messages.OFF)),
        ("h2", {}, made.RUNS, made.RUNS),
    ],
)
def test_a_guest_that_was_here_and_is_no_longer_is_told_as_stopped(host, tried, there, told):
    registry = made.registry({"web1": made.record(host, epoch=4, run=False)})
    sees = made.agent_sees(guests={"web1": there} if there else {})
    beat = step(made.agent({"registry": registry}, tried=tried), sees).beat
    assert beat.guests == ({"web1": told} if told else {})


# -- what it says of others ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members, heard_s, since_s, silent",
    [
        (made.HOSTS, {"h2": NOW_S - 5.9, "h3": NOW_S - 6}, 0, {"h3": 6}),
        (made.HOSTS, {}, NOW_S - 6, {"h2": 6, "h3": 6}),
        (made.HOSTS, {}, NOW_S - 5.9, {}),
        (("h1",), {"h9": NOW_S - 9}, 0, {"h9": 9}),  # one that may become a member
    ],
)
def test_it_says_whom_it_has_not_heard_for_how_long(members, heard_s, since_s, silent):
    state = made.agent(
        {"registry": made.registry(members=members)}, heard_s=heard_s, since_s=since_s
    )
    assert step(state, heard()).beat.silent_s == silent


DOUBTED = made.registry(hosts={"h2": HostRecord(SUSPECTED, boot=1)})


@pytest.mark.parametrize(
    "kept, heard_s, told",
    [
        ({}, NOW_S, False),
        ({}, NOW_S - 6, True),
        ({"fence_votes": {"h2": ASKED}}, NOW_S, True),
        ({"pending": DOUBTED}, NOW_S, True),
        ({"registry": DOUBTED}, NOW_S, True),
    ],
)
def test_it_tells_what_a_host_said_last_of_which_the_leader_may_ask(kept, heard_s, told):
    said = {"h2": HostState(1, 7, armed=True), "h3": HostState(1, 8)}
    state = made.agent({"host_states": said, **kept}, heard_s={"h2": heard_s, "h3": NOW_S})
    assert step(state, heard(messages={})).beat.host_states == ({"h2": said["h2"]} if told else {})


@pytest.mark.parametrize(
    "kept, call, sends",
    [
        ({}, {"ask_registry": True}, True),
        ({}, {"ask_registry": False}, False),
        ({"term": 2}, {"ask_registry": True}, False),
        ({}, {"ask_registry": True, "master": "m2", "asks": False}, False),
        ({"term": 0, "leader": ""}, {"ask_registry": True, "term": 0}, False),
    ],
)
def test_the_registry_is_sent_to_the_leader_that_asks_for_it(kept, call, sends):
    """Another master may have asked for none."""
    calls = {"m1": made.call(**call), "m3": made.call("m3", asks=False)}
    pending = version(6)
    beat = step(made.agent({"pending": pending, **kept}), made.agent_sees(messages=calls)).beat
    assert beat.registry == (pending if sends else None)


@pytest.mark.parametrize(
    "asked, text", [((), ""), (("h2",), ""), (("h1",), "all"), (("h2", "h1"), "all")]
)
def test_what_persons_want_is_told_in_full_when_a_master_asks_this_host(asked, text):
    calls = {f"m{place}": made.call(f"m{place}", ask_config=host)
             for place, host in enumerate(asked, 1)}  # fmt: skip
    registry = made.registry(config=CommittedConfig(1, 4, "all"))
    beat = step(made.agent({"registry": registry}), made.agent_sees(messages=calls)).beat
    assert beat.config == CommittedConfig(1, 4, text, committed_config.digest("all"))


def test_a_beat_says_what_the_agent_keeps_and_sees():
    state = made.agent(
        {"term": 3, "leader": "m1", "claim": 9, "pending": version(6, term=2)},
        granted_s=NOW_S - 2,
    )
    sees = made.agent_sees(
        messages={}, watchdog_s=12, storage_silent_s=3.5, leases={"web1": 4}, guests=RUNNING
    )
    assert step(state, sees).beat == messages.Heartbeat(
        "h1", 1, 101, watchdog_s=12, storage_silent_s=3.5, guests=RUNNING,
        acks={"h2": HeartbeatAck(1, 7), "h3": HeartbeatAck(1, 7)}, term=3, leader="m1", claim=9,
        granted_s=2,
        stored_term=2, stored=6, applied=5, leases={"web1": 4}, terms=made.POLICY.terms(""),
    )  # fmt: skip
