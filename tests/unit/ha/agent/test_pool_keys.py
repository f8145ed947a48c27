"""Heartbeats in a shared pool, to which others may write: only sealed ones are accepted."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("libvirt")

from saltvirt.ha.agent import pool_heartbeat, pool_keys
from saltvirt.ha.agent.pool_keys import PoolKeys
from saltvirt.ha.model.messages import Heartbeat, HeartbeatAck, ReceivedHeartbeat

BEAT = Heartbeat("hv2", 1_700_000_000, 7, storage_silent_s=0, acks={"hv1": HeartbeatAck(1, 5)})


@pytest.fixture
def two(tmp_path):
    """(The keys of hv1, which has heard hv2; those of hv2)."""
    mine, theirs = PoolKeys(str(tmp_path / "hv1")), PoolKeys(str(tmp_path / "hv2"))
    mine.receive({"hv2": ReceivedHeartbeat(replace(BEAT, pool_key=theirs.local_key), 5)})
    return mine, theirs


def read(sealed):
    data = json.loads(sealed)
    return Heartbeat.from_answer(data, "a file"), data[pool_keys.MAC]


def test_what_a_host_has_sealed_is_its_own(two):
    mine, theirs = two
    assert mine.is_of(*read(theirs.seal(BEAT)))


@pytest.mark.parametrize("change", [
    {"boot": 2**61}, {"seq": 2**61}, {"acks": {"hv1": HeartbeatAck(1, 9)}}, {"host": "hv3"},
])  # fmt: skip
def test_what_somebody_else_wrote_there_is_nobodys(two, change):
    """A boot number of 2^61, read once, kept a host from being acknowledged ever again."""
    mine, theirs = two
    _, mac = read(theirs.seal(BEAT))
    assert not mine.is_of(replace(BEAT, **change), mac)
    assert not mine.is_of(BEAT, "")


@pytest.mark.parametrize("mac", ["\u00e9", "\ud800", "x" * 64])
def test_a_mac_of_any_characters_ends_no_reading_of_the_pool(two, mac):
    """The thread of the pool ended, so that the pool counted as lost on each host that read it."""
    mine, _theirs = two
    one = pool_heartbeat.PoolHeartbeat(
        "/x", ["true"], ["hv1", "hv2", "hv3"], lambda: 7.0, mine.is_of
    )
    forged = {**BEAT.to_answer(), pool_keys.MAC: mac}
    one._take(5, {"beats": {"hv2": forged}})
    assert (one.beats, one.wrote_s, one.read_s) == ({}, 5, 5)
    one.end()


def test_of_a_host_that_told_no_key_nothing_is_taken(two):
    mine, theirs = two
    assert not theirs.is_of(*read(mine.seal(replace(BEAT, host="hv1"))))


def test_keys_outlive_the_agent_and_are_on_no_pool(two, tmp_path):
    mine, theirs = two
    again = PoolKeys(str(tmp_path / "hv1"))
    assert again.local_key == mine.local_key and again.is_of(*read(theirs.seal(BEAT)))
    assert theirs.local_key.encode() not in theirs.seal(BEAT)
    assert (tmp_path / "hv1").stat().st_mode & 0o777 == 0o600
    (tmp_path / "hv1").write_text("{")
    assert PoolKeys(str(tmp_path / "hv1")).local_key not in ("", mine.local_key)


def test_a_pool_gives_on_only_what_is_sealed(two):
    mine, theirs = two
    one = pool_heartbeat.PoolHeartbeat("/x", ["true"], ["hv1", "hv2"], lambda: 7.0, mine.is_of)
    forged = {**BEAT.to_answer(), "boot": 2**61}
    one._take(5, {"beats": {"hv2": forged}})
    assert one.beats == {} and one.wrote_s == 5
    one._take(6, {"beats": {"hv2": json.loads(theirs.seal(BEAT))}})
    assert one.beats == {"hv2": BEAT}
    one.end()
