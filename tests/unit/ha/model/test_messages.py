"""Messages between hosts and masters: what is stored, and what is valid."""

from dataclasses import replace

import pytest

from saltvirt import errors
from saltvirt.ha.agent import store
from saltvirt.ha.model import messages, registry, view
from saltvirt.ha.model.messages import FenceVote, GuestStatus, Heartbeat, HeartbeatAck, HostState
from saltvirt.ha.model.registry import CommittedConfig, HostRecord, Registry
from tests.unit.ha.model import made

BEAT = Heartbeat(
    "h1", 3, 7, phase=messages.LEAVING, freeze=True, armed=True, watchdog_s=10,
    guests={"web1": GuestStatus(1, messages.RUNNING)}, acks={"h2": HeartbeatAck(1, 5)},
    silent_s={"h3": 9.0},
    fence_votes={"h3": FenceVote(1, 1, 1)}, host_states={"h3": HostState()}, term=2, leader="m1",
    applied=3,
    leases={"web1": 2}, definitions="0123", config=CommittedConfig(1, 1, "text"),
    registry=Registry(),
)  # fmt: skip


def test_a_host_promises_what_its_last_beat_says():
    assert BEAT.host_state == HostState(3, 7, True, 10, messages.LEAVING, True)


@pytest.mark.parametrize(
    "change, lasts",
    [({"seq": 8}, False), ({"boot": 4}, True), ({"armed": False}, True), ({"watchdog_s": 11}, True),
     ({"phase": messages.SHUT_DOWN}, True), ({"freeze": False}, True)],
)  # fmt: skip
def test_of_what_a_host_says_of_itself_the_number_alone_may_be_forgotten(change, lasts):
    assert (replace(BEAT.host_state, **change).lasting != BEAT.host_state.lasting) is lasts


def test_a_master_is_told_all_but_whom_a_host_acknowledges():
    assert BEAT.to_master() == replace(BEAT, acks={})


def test_peers_are_told_that_a_host_lives_and_whom_it_acknowledges():
    assert BEAT.to_peers() == Heartbeat(
        "h1", 3, 7, phase=messages.LEAVING, freeze=True, armed=True, watchdog_s=10,
        acks=BEAT.acks, term=2, leader="m1", applied=3,
    )  # fmt: skip


def test_a_digest_stands_for_what_each_has_by_its_name_in_any_order():
    given = {"web1": "0a", "web2": "0b"}
    assert messages.digest(given) == messages.digest({"web2": "0b", "web1": "0a"})
    others = ({}, {"web1": "0a"}, {"web1": "0b", "web2": "0a"}, {"web1": "0a0", "web2": "b"})
    assert len({messages.digest(one) for one in (given, *others)}) == 5


@pytest.mark.parametrize("kind", [Registry, CommittedConfig])
def test_of_two_that_of_the_later_term_holds_and_within_a_term_the_later_version(kind):
    stamps = [kind(term=term, version=version).stamp
              for term, version in [(2, 2), (0, 0), (2, 1), (1, 9)]]  # fmt: skip
    assert sorted(stamps) == [(0, 0), (1, 9), (2, 1), (2, 2)]


def test_of_a_host_that_is_not_recorded_nothing_is_known():
    known = made.registry()
    assert known.host("h1") == HostRecord(registry.UP, boot=1)
    assert known.host("h9") == HostRecord(registry.UNKNOWN)


@pytest.mark.parametrize(
    "state, asked",
    [(registry.SUSPECTED, True), (registry.FENCING, True), (registry.UNKNOWN, True),
     (registry.UP, False), (registry.FENCED, False), (registry.RETURNING, False),
     (registry.MAINTENANCE, False), (registry.REST, False)],
)  # fmt: skip
def test_all_tell_what_they_know_of_a_host_in_doubt(state, asked):
    known = made.registry(hosts={"h2": HostRecord(state, boot=1)})
    assert known.suspects == (["h2"] if asked else [])


@pytest.mark.parametrize(
    "masters, alone", [(("m1",), True), (("m1", "m2"), False), (("m1", "m2", "m3"), False)]
)
def test_a_master_is_alone_where_there_is_no_other(masters, alone):
    assert made.seen(masters=masters).sole_master is alone


def test_a_master_begins_with_what_it_kept_and_leads_nothing():
    kept = view.SavedMasterState(term=4, registry=made.registry())
    began = view.initial_state("m1", kept, 50)
    assert (began.master, began.saved, began.began_s) == ("m1", kept, 50)
    assert began.leading_s is None and not began.ready


@pytest.mark.parametrize("key", ["boot", "seq"])
def test_what_follows_from_the_largest_number_that_a_host_tells_can_be_told(key):
    """The record of a host whose boot was the largest number could be read by nobody any more."""
    most = {"boot": 1, "seq": 1, key: 2**62 - 1}
    beat = Heartbeat.from_answer({**Heartbeat("h1", 1, 1).to_answer(), **most}, "h1")
    record = HostRecord(boot=beat.boot, dead_before=beat.boot + 1)
    assert HostRecord.from_answer(record.to_answer(), "h2") == record
    with pytest.raises(errors.BadAnswer, match=f"h1: {key} is not a number from 0"):
        Heartbeat.from_answer({"host": "h1", **most, key: 2**62}, "h1")


REQUIRED = (
    (BEAT, ("fence_votes", "host_states", "config")),
    (messages.LeaderMessage("m1", 1, 7), ("sole_master",)),
    (Registry(), ("config",)),
    (HostRecord(), ("dead_before",)),
    (made.record(), ("locations",)),
    (registry.HaGuestRecord(), ("locations",)),
    (view.GuestConfig("web1"), ("desired_state",)),
    (view.SavedMasterState(), ("host_states",)),
    (
        store.SavedFile({}, {}, 1, "", 0, Registry(), Registry()),
        ("fence_votes", "host_states", "term", "pending", "registry"),
    ),
)


@pytest.mark.parametrize(
    "message, key", [(message, key) for message, keys in REQUIRED for key in keys]
)
def test_what_must_not_be_forgotten_is_never_taken_for_its_default(message, key):
    """In a file or a message of a version that names it otherwise: a guest would run twice, a
    promise would be broken, or one that is to be down would be started."""
    data = {"name": "web1", **message.to_answer()}
    assert type(message).from_answer(data, "h1") is not None
    del data[key]
    with pytest.raises(errors.BadAnswer, match=f"h1: it is not complete: {key} is missing"):
        type(message).from_answer(data, "h1")
