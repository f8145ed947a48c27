"""One decision of a master: heartbeats, changes of the registry, fences, and messages to the
hosts."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import decide, idle, messages
from saltvirt.ha.model import host_states as believed
from saltvirt.ha.model.decide import has_registry, without_stored
from saltvirt.ha.model.messages import (
    FenceVote,
    GuestStatus,
    HeartbeatAck,
    HostState,
    LeaderMessage,
)
from saltvirt.ha.model.registry import (
    BLOCKED,
    FENCED,
    FENCING,
    MAINTENANCE,
    NEW,
    PLACED,
    RECOVERING,
    SUSPECTED,
    UNKNOWN,
    UP,
    CommittedConfig,
    GuestLocation,
    HostRecord,
)
from saltvirt.ha.model.view import Fence, FenceAttempt, FenceResult, SavedMasterState, StateChange
from tests.unit.ha.model import made
from tests.unit.ha.model.made import HOSTS, NOW_S, POLICY, RUNS, record, wanted

# the last call, which all hosts have answered; all is kept by them
SEQ, VERSION, BALLOT = 50, 5, 4


def grants(host, at_s=NOW_S - 1, **changes):
    """A beat of a host that grants the lead."""
    return made.beat(host, at_s, **{"term": 1, "leader": "m1", "claim": SEQ, **changes})


def state(registry=None, pledges=None, **changes):
    kept = SavedMasterState(term=1, registry=registry or made.registry(), host_states=pledges or {})
    return made.master(**{"seq": SEQ, "sent_s": {SEQ: NOW_S - 1}, "saved": kept, **changes})


def view(beats=None, **sees):
    """beats: of a host, other than an idle one's; None: none."""
    told = {**{host: grants(host) for host in HOSTS}, **(beats or {})}
    told = {host: one for host, one in told.items() if one}
    return replace(made.seen(**sees), beats=told)


def decided(hosts=None, records=None, beats=None, known=None, led=None, pledges=None, **sees):
    """The Decision of one who leads, at rest but for this. hosts: those that are not up; records:
    of guests; known: of the registry; led: of the MasterState; sees: of the View, which has the
    guests that are recorded."""
    registry = made.registry(records, hosts, **(known or {}))
    asked = {name: wanted(name) for name in records or ()}
    sees = view(beats, **{"guests": asked, **sees})
    return decide.decide(sees, state(registry, pledges, **(led or {})), NOW_S)


def after(*given, **changes):
    """The registry afterwards."""
    return decided(*given, **changes).state.saved.registry


MISS = {"h1": POLICY.suspect_s}
# h1 is silent; the others say so, and have promised not to acknowledge it
GONE = {
    "h1": None,
    **{host: grants(host, silent_s=MISS, fence_votes={"h1": FenceVote(1, 1, BALLOT)})
       for host in ("h2", "h3")},
}  # fmt: skip
GIVEN_UP = {"h1": HostRecord(FENCING, boot=1, ballot=BALLOT)}
FIVE = (*HOSTS, "h4", "h5")


def but(beats, **changes):
    """These beats, changed."""
    return {host: one and replace(one, beat=replace(one.beat, **changes))
            for host, one in beats.items()}  # fmt: skip


def there(host="h1", **guests):
    return {host: grants(host, guests=guests)}


EMPTY = "maintenance was requested"


# -- who decides -----------------------------------------------------------------------------------


def test_where_nothing_is_wrong_nothing_is_changed():
    guests = {"web1": record(changed=2)}
    found = decided(records=guests, beats=there(web1=RUNS))
    assert (found.changes, found.fences) == ((), ())
    assert found.state.saved.registry == made.registry(guests)


LATER = {host: grants(host, stored=9) for host in HOSTS}
EARLIER = {host: grants(host, stored=4) for host in HOSTS}


@pytest.mark.parametrize(
    "led, beats",
    [
        ({"sent_s": {SEQ: NOW_S - POLICY.lead_s}}, {}),  # its lead has ended
        ({"ready": False}, LATER),  # it does not know the last registry
        ({"committed": 4}, EARLIER),  # not enough keep what was decided last
    ],
)
def test_a_master_decides_while_it_leads_by_a_registry_that_enough_hosts_keep(led, beats):
    mark = {"maintenance": frozenset({"h1"})}
    found = decided(beats=beats, led=led, **mark)
    assert (found.changes, found.state.saved.registry) == ((), made.registry())
    assert decided(**mark).changes == (StateChange("host", "h1", UP, MAINTENANCE, EMPTY),)


@pytest.mark.parametrize(
    "led, beats, counts",
    [
        ({}, GONE, True),
        ({"committed": 4}, but(GONE, stored=4), True),
        ({"sent_s": {SEQ: NOW_S - POLICY.lead_s}}, GONE, False),
        ({"ready": False}, but(GONE, stored=9), False),
    ],
)
def test_promises_count_from_when_a_leader_sees_them(led, beats, counts):
    found = decided(GIVEN_UP, beats=beats, led=led)
    assert found.state.voted_s == ({"h1": (BALLOT, NOW_S)} if counts else {})


def test_each_decision_is_a_call_and_what_was_asked_long_ago_is_forgotten():
    asked = {48: NOW_S - POLICY.lead_lease_s, 49: NOW_S - POLICY.lead_lease_s + 0.1,
             SEQ: NOW_S - 1}  # fmt: skip
    found = decided(led={"sent_s": asked})
    assert found.state.seq == found.message.seq == SEQ + 1
    assert found.state.sent_s == {49: asked[49], SEQ: asked[SEQ], SEQ + 1: NOW_S}


# -- what was heard --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known, told, later",
    [
        (None, (1, 7), True),
        ((1, 6), (1, 7), True),
        ((1, 7), (1, 7), False),
        ((1, 8), (1, 7), False),
        ((2, 1), (1, 7), False),
        ((1, 9), (2, 1), True),
    ],
)
def test_the_last_that_a_host_said_is_acknowledged_and_kept(known, told, later):
    boot, seq = told
    beats = {"h1": grants("h1", boot=boot, seq=seq, freeze=True)}
    acks, pledges = ({"h1": kind(*known)} if known else {} for kind in (HeartbeatAck, HostState))
    found = decided(beats=beats, led={"acks": acks}, pledges=pledges).state
    kept = told if later else known
    assert found.acks["h1"] == HeartbeatAck(*kept)
    assert found.saved.host_states["h1"] == HostState(*kept, freeze=later)
    assert set(found.acks) == set(found.saved.host_states) == set(HOSTS)


def test_what_was_heard_before_is_not_forgotten():
    last = HostState(1, 5, armed=True)
    found = decided(
        beats={"h1": None}, led={"acks": {"h1": HeartbeatAck(1, 5)}}, pledges={"h1": last}
    )
    assert (found.state.acks["h1"], found.state.saved.host_states["h1"]) == (
        HeartbeatAck(1, 5),
        last,
    )


@pytest.mark.parametrize(
    "suspected, words, kept",
    [
        (SUSPECTED, {"h2": (1, 6)}, (1, 6)),
        (FENCING, {"h2": (1, 6), "h3": (1, 5)}, (1, 6)),
        (FENCING, {"h2": (1, 5), "h3": (1, 6)}, (1, 6)),
        (UNKNOWN, {"h2": (1, 4)}, (1, 5)),
        (UP, {"h2": (1, 9)}, (1, 5)),
    ],
)
def test_of_one_that_is_in_doubt_the_last_counts_that_anybody_heard(suspected, words, kept):
    """It is not written down: it is not proven who said it."""
    beats = {host: grants(host, host_states={"h1": HostState(*one)}) for host, one in words.items()}
    hosts = {"h1": HostRecord(suspected, boot=1)}
    registry, own = made.registry(None, hosts), {"h1": HostState(1, 5)}
    sees = view({"h1": None, **beats})
    said = believed.believed_state("h1", state(registry, own), sees)
    assert (said.boot, said.seq) == kept
    found = decided(hosts, beats={"h1": None, **beats}, pledges=own)
    assert found.state.saved.host_states["h1"] == HostState(1, 5)
    assert found.state.saved.host_states["h2"].seq == 7


# -- promises --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known, beats, promised",
    [
        ({}, GONE, (BALLOT, NOW_S)),
        ({"h1": (BALLOT, NOW_S - 9)}, GONE, (BALLOT, NOW_S - 9)),
        ({"h1": (BALLOT, NOW_S - 9)}, {"h1": None}, (BALLOT, NOW_S - 9)),
        ({"h1": (BALLOT - 1, NOW_S - 9)}, GONE, (BALLOT, NOW_S)),
        ({"h1": (BALLOT - 1, NOW_S - 9)}, {"h1": None}, None),
        ({"h2": (BALLOT, NOW_S - 9)}, GONE, (BALLOT, NOW_S)),
    ],
)
def test_it_is_known_since_when_a_majority_has_promised_for_this_question(known, beats, promised):
    found = decided(GIVEN_UP, beats=beats, led={"voted_s": known}).state
    assert found.voted_s == ({"h1": promised} if promised else {})


@pytest.mark.parametrize(
    "state, ballot, counts",
    [
        (FENCING, VERSION, True),
        (FENCING, VERSION + 1, False),  # nobody can have been asked yet
        (SUSPECTED, BALLOT, False),
        (FENCED, BALLOT, False),
    ],
)
def test_promises_count_of_a_host_that_is_given_up_in_what_enough_hosts_keep(state, ballot, counts):
    beats = but(GONE, fence_votes={"h1": FenceVote(1, 1, ballot)})
    hosts = {"h1": HostRecord(state, boot=1, ballot=ballot)}
    assert ("h1" in decided(hosts, beats=beats).state.voted_s) is counts


# -- what persons want -----------------------------------------------------------------------------


@pytest.mark.parametrize("was, wants", [(True, False), (False, True), (False, False)])
def test_it_is_armed_as_a_person_wants(was, wants):
    found = after(known={"armed": was}, armed=wants)
    assert (found.armed, found.version) == (wants, VERSION + (was != wants))


@pytest.mark.parametrize(
    "was, wants, members, after_it",
    [
        (False, False, FIVE, (*HOSTS, "h4")),
        (False, False, ("h3",), ("h2", "h3")),
        (False, False, ("h1", "h2", "h4"), (*HOSTS, "h4")),
        (False, False, HOSTS, HOSTS),
        (True, False, ("h3",), HOSTS),
        (False, True, ("h3",), HOSTS),
    ],
)
def test_members_come_and_go_one_by_one_and_only_while_it_is_disarmed(
    was, wants, members, after_it
):
    assert after(known={"armed": was}, members=members, armed=wants).members == after_it


def test_a_guest_that_a_person_took_out_is_forgotten_and_the_others_are_not():
    guests = {"web1": record(changed=2), "web2": record("h2", changed=2)}
    found = after(records=guests, beats=there("h2", web2=RUNS), guests={"web2": wanted("web2")})
    assert (found.guests, found.version) == ({"web2": guests["web2"]}, VERSION + 1)


def test_what_persons_want_is_agreed_on_by_the_version_in_which_it_is_written():
    found = after(masters=("m1", "m2"), own_config=CommittedConfig(1, 3, "wishes"))
    assert found.config == CommittedConfig(1, VERSION + 1, "wishes")


def test_guests_that_nothing_happens_to_are_the_very_objects_which_are_not_looked_at_again():
    """See ``quiet``."""
    guests = {"web1": record(changed=2)}
    found = decided(records=guests, beats=there(web1=RUNS), maintenance=frozenset({"h3"})).state
    assert found.saved.registry.version == VERSION + 1
    assert found.saved.registry.guests is guests
    assert found.idle.records is guests and found.idle.statuses.keys() == {"h1"}


# -- hosts -----------------------------------------------------------------------------------------


def test_a_host_is_given_up_by_the_version_in_which_it_is_written():
    hosts = {"h1": HostRecord(SUSPECTED, boot=1)}
    found = decided(hosts, {"web1": record(changed=2)}, GONE, maintenance=frozenset({"h3"}))
    why = "a majority of the hosts receives no heartbeats from it"
    assert found.state.saved.registry.hosts["h1"] == HostRecord(FENCING, why, 1, ballot=VERSION + 1)
    assert found.changes[0] == StateChange("host", "h1", SUSPECTED, FENCING, why)
    assert [one.name for one in found.changes] == ["h1", "h3", "web1"]
    assert found.state.fenced_s == {"h1": NOW_S}
    assert found.state.saved.registry.fences == ("h1",)


@pytest.mark.parametrize("fenced, state", [({}, FENCING), ({"h3": NOW_S}, SUSPECTED)])
def test_of_two_hosts_the_second_is_given_up_only_where_the_first_left_it_a_fence(fenced, state):
    """Five hosts, of which two are silent; two may be fenced in the window."""
    silent = {"h1": 9.0, "h2": 9.0}
    beats = {"h1": None, "h2": None, **{host: grants(host, silent_s=silent) for host in FIVE[2:]}}
    hosts = dict.fromkeys(silent, HostRecord(SUSPECTED, boot=1))
    records = {"web1": record("h1"), "web2": record("h2")}
    found = after(hosts, records, beats, {"members": FIVE}, {"fenced_s": fenced}, members=FIVE)
    assert (found.hosts["h1"].state, found.hosts["h2"].state) == (FENCING, state)


@pytest.mark.parametrize("ago_s, remains", [(599.9, True), (600, False)])
def test_that_a_host_was_given_up_counts_for_the_window(ago_s, remains):
    found = decided(led={"fenced_s": {"h2": NOW_S - ago_s}}, known={"fences": ("h2",)})
    assert found.state.fenced_s == ({"h2": NOW_S - ago_s} if remains else {})
    assert found.state.saved.registry.fences == (("h2",) if remains else ())


def test_hosts_that_were_given_up_are_in_order_whichever_was_first():
    assert after(led={"fenced_s": {"h3": NOW_S - 1, "h2": NOW_S - 2}}).fences == ("h2", "h3")


NO_GUEST = "it runs no guests of high availability"


@pytest.mark.parametrize(
    "stuck, why, said", [(False, NO_GUEST, True), (True, "other", True), (True, NO_GUEST, False)]
)
def test_why_a_silent_host_is_left_alone_is_said_once(stuck, why, said):
    hosts = {"h1": HostRecord(SUSPECTED, why, boot=1, stuck=stuck)}
    found = decided(hosts, beats={"h1": None}, maintenance=frozenset({"h3"}))
    assert found.state.saved.registry.hosts["h1"] == HostRecord(SUSPECTED, NO_GUEST, 1, stuck=True)
    words = [StateChange("host", "h1", SUSPECTED, SUSPECTED, NO_GUEST)] if said else []
    assert found.changes == (*words, StateChange("host", "h3", UP, MAINTENANCE, EMPTY))


def test_nothing_is_said_of_a_silent_host_of_which_a_proof_is_awaited():
    found = decided(GIVEN_UP, beats=GONE, fence_levels={"h1": 1})
    assert (found.changes, found.state.saved.registry.version) == ((), VERSION)


def test_a_host_that_is_quiet_is_passed_over_and_the_next_is_not(monkeypatch):
    monkeypatch.setattr(idle, "is_idle_host", lambda name, *_: name == "h1")
    found = after(maintenance=frozenset(HOSTS))
    assert [found.hosts[host].state for host in HOSTS] == [UP, MAINTENANCE, MAINTENANCE]


# -- guests ----------------------------------------------------------------------------------------

DOWN = record("", run=False, boot=0, locations=(), last="", state=RECOVERING)


@pytest.mark.parametrize(
    "priorities, first", [((0, 0), "db1"), ((1, 0), "db1"), ((0, 1), "web1"), ((-1, 0), "web1")]
)
def test_guests_are_started_by_priority_then_by_name_while_there_is_room(priorities, first):
    asked = {name: wanted(name, priority=one)
             for name, one in zip(("db1", "web1"), priorities, strict=True)}  # fmt: skip
    found = after(
        records={"web1": DOWN, "db1": DOWN}, guests=asked,
        placement_hosts={"h1": made.seen().placement_hosts["h1"]},
        policy=replace(POLICY, starts_at_once=1),
    ).guests  # fmt: skip
    (other,) = {"web1", "db1"} - {first}
    placed = replace(DOWN, reason="a host was selected for it", host="h1", boot=1, run=True,
                     last="h1", epoch=2, locations=(GuestLocation("h1", 1),),
                     changed=VERSION + 1)  # fmt: skip
    assert found[first] == placed
    assert (found[other].state, found[other].reason) == (
        BLOCKED,
        "h1: the maximum number of guests is already starting",
    )


@pytest.mark.parametrize("epoch, since_s", [(1, NOW_S - 50), (2, NOW_S), (None, NOW_S)])
def test_it_is_known_since_when_a_guest_runs_in_this_epoch(epoch, since_s):
    ran = {"web1": (epoch, NOW_S - 50)} if epoch else {}
    found = decided(records={"web1": record(restarts=1, changed=2)}, beats=there(web1=RUNS),
                    led={"ran_s": ran})  # fmt: skip
    assert found.state.ran_s == {"web1": (1, since_s)}


def test_one_that_does_not_run_has_run_for_no_time():
    starts = there(web1=GuestStatus(1, messages.STARTING))
    found = decided(records={"web1": record(state=RECOVERING)}, beats=starts,
                    led={"ran_s": {"web1": (1, NOW_S - 50)}})  # fmt: skip
    assert found.state.ran_s == {}


def test_a_guest_that_is_new_is_recorded_and_its_host_asked():
    found = decided(guests={"web1": wanted()})
    version = VERSION + 1
    new = made.HaGuestRecord(epoch=2 * version, changed=version)
    assert found.state.saved.registry.guests["web1"] == new
    assert found.changes == (StateChange("guest", "web1", NEW, NEW, ""),)


def test_a_guest_that_is_new_and_has_no_host_is_free():
    found = decided(guests={"web1": wanted(host="")})
    why = "its host reports that it does not run"
    assert found.changes == (StateChange("guest", "web1", NEW, RECOVERING, why),)


STRAY = (GuestLocation("h1", 1), GuestLocation("h2", 1))


@pytest.mark.parametrize(
    "of, told",
    [
        (record(changed=2), None),
        # a place that is struck off is not worth a word
        (record(changed=2, locations=STRAY), record(changed=6)),
        (record(changed=0), record(changed=6)),
    ],
)
def test_a_record_that_changes_has_the_version_in_which_it_did(of, told):
    found = decided(records={"web1": of}, beats=there(web1=RUNS))
    assert found.state.saved.registry.guests["web1"] == (told or of)
    assert found.state.saved.registry.version == VERSION + bool(told)
    assert found.changes == ()


def test_the_same_reason_again_is_no_change():
    """It is blocked for want of room, decision after decision."""
    why = "h1: in maintenance; h2: in maintenance; h3: in maintenance"
    empty = {"hosts": dict.fromkeys(HOSTS, HostRecord(MAINTENANCE, boot=1)),
             "maintenance": frozenset(HOSTS)}  # fmt: skip
    of = replace(DOWN, state=BLOCKED, reason=why, changed=2)
    found = decided(records={"web1": of}, **empty)
    assert (found.changes, found.state.saved.registry.version) == ((), VERSION)
    other = decided(records={"web1": replace(of, reason="other")}, **empty)
    assert other.changes == (StateChange("guest", "web1", BLOCKED, BLOCKED, why),)
    assert other.state.saved.registry.guests["web1"] == replace(of, changed=VERSION + 1)


def test_a_guests_new_state_is_said_though_the_reason_is_the_same():
    of = replace(DOWN, state=PLACED, reason="it is proven that it does not run anywhere",
                 host="h1", boot=1, run=True, locations=(GuestLocation("h1", 1),))  # fmt: skip
    hosts = {"h1": HostRecord(FENCED, boot=1, dead_before=2)}
    found = decided(hosts, {"web1": of}, {"h1": None})
    assert found.changes == (StateChange("guest", "web1", PLACED, RECOVERING, of.reason),)


@pytest.mark.parametrize("of", [record(changed=2), DOWN])
def test_for_how_long_a_guests_agent_may_be_silent_is_recorded_without_a_word(of):
    asked = {"web1": wanted(agent_silent_s=60)}
    changed = decided(records={"web1": of}, beats=there(web1=RUNS), guests=asked)
    as_it_was = decided(records={"web1": of}, beats=there(web1=RUNS))
    expected = replace(as_it_was.state.saved.registry.guests["web1"], agent_silent_s=60)
    assert changed.state.saved.registry.guests["web1"] == expected
    assert changed.changes == as_it_was.changes


# -- fences ----------------------------------------------------------------------------------------


TWO_FENCES = {"h1": 2}


def tried(number, ago_s=999, question="1.4"):
    """An attempt to fence h1."""
    return FenceAttempt(question, number, NOW_S - ago_s)


def fenced(last=None, levels=TWO_FENCES, seen=None, hosts=GIVEN_UP, **led):
    """The fences that are run now. last: attempt; seen: how the last one that ended did so."""
    attempts = {"h1": last} if last else {}
    led = {"voted_s": {"h1": (BALLOT, NOW_S - 1)}, "attempts": attempts, **led}
    fences = {"h1": seen} if seen else {}
    found = decided(hosts, beats=GONE, led=led, fence_levels=levels, fences=fences)
    begun = [tried(int(one.attempt[-1]), 0) for one in found.fences]
    assert list(found.state.attempts.values()) == (begun or list(attempts.values()))
    return found.fences


def test_a_host_is_fenced_as_soon_as_a_majority_has_promised():
    assert fenced(voted_s={}) == fenced() == (Fence("h1", 0, "1.4.0"),)


@pytest.mark.parametrize(
    "changes",
    [
        {"levels": {"h1": 0}},
        {"levels": {"h2": 1}},
        {"hosts": {"h1": HostRecord(FENCING, boot=1, ballot=BALLOT + 1)}, "voted_s": {}},
        {"hosts": {"h1": HostRecord(SUSPECTED, boot=1)}},
    ],
)
def test_nobody_is_fenced_without_promises_or_a_fence(changes):
    assert fenced(**changes) == ()


def test_one_that_is_heard_again_is_not_fenced_and_the_next_is():
    both = {host: HostRecord(FENCING, boot=1, ballot=BALLOT) for host in ("h1", "h2")}
    beats = {"h2": None, **{host: grants(host, silent_s={"h2": 9.0}) for host in FIVE[2:]}}
    since = dict.fromkeys(both, (BALLOT, NOW_S - 1))
    found = decided(both, beats=beats, known={"members": FIVE}, led={"voted_s": since},
                    fence_levels={"h1": 1, "h2": 1})  # fmt: skip
    assert found.fences == (Fence("h2", 0, "1.4.0"),)


@pytest.mark.parametrize("number, level", [(0, 1), (1, 0), (2, 1)])
def test_its_fences_are_tried_in_turn(number, level):
    assert fenced(tried(number)) == (Fence("h1", level, f"1.4.{number + 1}"),)


def test_attempts_of_an_earlier_question_do_not_count():
    assert fenced(tried(3, 0, "1.3")) == (Fence("h1", 0, "1.4.0"),)


@pytest.mark.parametrize(
    "seen, wait_s",
    [
        (FenceResult("1.4.1", "on"), 30),
        (None, 120),
        (FenceResult("1.4.0", "on"), 120),
        (FenceResult("1.3.1", "on"), 120),
    ],
)
def test_a_fence_is_tried_again_some_time_after_it_ended_or_much_later(seen, wait_s):
    assert fenced(tried(1, wait_s - 0.1), seen=seen) == ()
    assert fenced(tried(1, wait_s), seen=seen) == (Fence("h1", 0, "1.4.2"),)


# -- what hosts are told ---------------------------------------------------------------------------

NOT_LEADING = {"sent_s": {}}


def test_a_leader_says_who_it_is_and_gives_the_registry_that_enough_hosts_keep():
    assert decided().message == LeaderMessage(
        "m1", 1, SEQ + 1, asks=True, leading=True, acks={host: HeartbeatAck(1,
        7) for host in HOSTS},
        registry=made.registry(), committed=VERSION,
    )  # fmt: skip


def test_one_who_does_not_lead_asks_for_the_lead_and_gives_no_registry():
    call = decided(led=NOT_LEADING).message
    assert (call.asks, call.leading, call.registry, call.ask_registry) == (True, False, None, False)


def test_one_who_leads_without_knowing_the_last_registry_asks_for_it():
    call = decided(beats=LATER, led={"ready": False}).message
    assert (call.asks, call.leading, call.registry, call.ask_registry) == (True, False, None, True)


SEVERAL = {"masters": ("m1", "m2")}
OLD = {host: grants(host, NOW_S - POLICY.suspect_s) for host in HOSTS}
WISHES = CommittedConfig(1, 3, "wishes")


@pytest.mark.parametrize(
    "led, beats, wished, asks",
    [
        (NOT_LEADING, {}, WISHES, True),
        (NOT_LEADING, OLD, WISHES, False),  # it hears no majority
        (NOT_LEADING, {}, CommittedConfig(), False),  # it does not know what persons want
        ({}, OLD, WISHES, True),
        ({}, {}, CommittedConfig(), True),
    ],
)
def test_who_may_lead_asks_and_who_leads_asks_on(led, beats, wished, asks):
    assert decided(led=led, beats=beats, own_config=wished, **SEVERAL).message.asks is asks


def test_it_asks_for_what_persons_want_where_another_has_agreed_on_it_later():
    """A majority has it: the word of one host is not enough."""
    beats = {host: grants(host, config=CommittedConfig(1, 4)) for host in ("h1", "h2")}
    seen = {"led": NOT_LEADING, "own_config": WISHES, **SEVERAL}
    assert decided(beats=beats, **seen).message.ask_config in beats
    assert decided(beats={"h2": beats["h2"]}, **seen).message.ask_config == ""


@pytest.mark.parametrize(
    "state, heard, led, masters, acknowledged",
    [
        (UP, 1, {}, ("m1",), True),
        (UP, 1, {}, ("m1", "m2"), True),
        (UP, 1, NOT_LEADING, ("m1",), True),
        (UP, 1, NOT_LEADING, ("m1", "m2"), False),
        (FENCING, 1, {}, ("m1",), False),
        (FENCED, 1, {}, ("m1",), False),
        (FENCING, 1, NOT_LEADING, ("m1",), True),
        # a boot after the one that was given up
        (FENCED, 2, {}, ("m1",), True),
        (FENCED, 0, {}, ("m1",), False),
    ],
)
def test_a_leader_acknowledges_no_boot_that_it_has_given_up(
    state, heard, led, masters, acknowledged
):
    hosts = {"h1": HostRecord(state, boot=1, dead_before=2 * (state == FENCED), ballot=BALLOT)}
    known = {"acks": {"h1": HeartbeatAck(heard, 7)}}
    call = decided(hosts, beats=GONE, led={**known, **led}, masters=masters).message
    assert ("h1" in call.acks) is acknowledged


@pytest.mark.parametrize(
    "state, ballot, led, asked",
    [
        (FENCING, BALLOT, {}, True),
        (FENCING, VERSION, {}, True),
        (FENCING, VERSION + 1, {}, False),  # not enough hosts keep that it is given up
        (FENCING, BALLOT, NOT_LEADING, False),
        (FENCED, BALLOT, {}, False),
    ],
)
def test_others_are_asked_to_give_up_a_host_when_enough_keep_that(state, ballot, led, asked):
    hosts = {"h1": HostRecord(state, boot=1, ballot=ballot)}
    call = decided(hosts, beats=GONE, led=led, fence_levels={"h1": 1}).message
    assert call.ballots == ({"h1": FenceVote(1, 1, ballot)} if asked else {})


@pytest.mark.parametrize(
    "registry, beat, has",
    [
        (made.registry(), made.beat(stored_term=1, stored=5).beat, True),
        (made.registry(), made.beat(stored_term=1, stored=4).beat, False),
        (made.registry(), made.beat(stored_term=2, stored=5).beat, False),
        (made.registry(), None, False),
        (None, made.beat(stored_term=1, stored=5).beat, False),
    ],
)
def test_a_host_is_spared_the_registry_that_it_keeps(registry, beat, has):
    call = LeaderMessage("m1", 1, 7, registry=registry)
    assert has_registry(call, beat) is has
    assert without_stored(call, beat) == replace(call, registry=None if has else registry)
