"""An agent whose disk is full or slow announces nothing that it has not stored."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import agent_view, state_disk
from saltvirt.ha.model.agent_view import FEED, KILL, START
from saltvirt.ha.model.messages import FenceVote, HeartbeatAck, HostState
from saltvirt.ha.model.registry import UP, HostRecord
from tests.unit.ha.model import made
from tests.unit.ha.model.made import HOSTS, NOW_S, POLICY

PLEDGE = HostState(1, 3)


class Disk(state_disk.StateDisk):
    def __init__(self, saved, works=True, doubtful=False):
        super().__init__(saved)
        self.works, self.doubtful, self.began = works, doubtful, []

    def begin(self, saved):
        self.began.append(saved)
        if self.works is not None:
            self.finish(self.works, self.doubtful)


def state(**changes):
    pledges = dict.fromkeys(HOSTS[1:], PLEDGE)
    given = {"sent": {99: NOW_S - 2}, "lease_from_s": NOW_S - 7}
    return made.agent({"host_states": pledges}, **{**given, **changes})


def sees(peer=None, **call):
    """h2 says something new of itself. Both peers acknowledge the beat of two seconds ago."""
    own = {"acks": {"h1": HeartbeatAck(1, 99)}}
    beats = {name: made.beat(name, **own) for name in HOSTS[1:]}
    beats["h2"] = made.beat("h2", **own, **(peer or {"armed": True}))
    return made.agent_sees(beats=beats, watchdog=True, works=True,
                           messages={"m1": made.call(leading=True, **call)})  # fmt: skip


def turn(disk, before=None, seen=None):
    return state_disk.durable_step(before or state(), seen or sees(), NOW_S, POLICY, disk)


def test_what_is_written_at_once_is_said_in_the_same_beat():
    disk = Disk(state().saved)
    step = turn(disk)
    assert step.beat.acks["h2"] == HeartbeatAck(1, 7) and step.state.saved.host_states["h2"].armed
    assert agent_view.must_save(disk.saved, step.state.saved) is False and disk.take_late() is None


@pytest.mark.parametrize("works", [False, None])
def test_what_is_not_on_the_disk_is_not_said_and_what_it_is_acknowledged_counts(works):
    """Found by reading: one whose disk was full lost its power once a peer said something new."""
    disk = Disk(state().saved, works)
    step = turn(disk, seen=sees(seq=9, ballots={"h3": FenceVote(1, 1, 5)}))
    assert step.state.saved.host_states["h2"] == PLEDGE and "h2" not in step.beat.acks
    assert step.beat.acks["h3"] == HeartbeatAck(1, 7)
    assert step.state.saved.fence_votes == {} and step.state.saved.claim == state().saved.claim
    assert step.state.lease_from_s == NOW_S - 2
    assert FEED in [one.kind for one in step.actions] or step.state.believed is False


def test_what_was_slow_is_said_once_it_is_there():
    disk = Disk(state().saved, works=None)
    step = turn(disk)
    for _ in range(3):
        step = turn(disk, step.state)
    assert len(disk.began) == 1 and not step.state.saved.host_states["h2"].armed
    disk.finish(written=True)
    step = turn(disk, step.state)
    assert step.state.saved.host_states["h2"].armed and step.beat.acks["h2"] == HeartbeatAck(1, 7)
    assert len(disk.began) == 1


def test_while_it_is_written_a_peer_that_takes_it_back_is_not_acknowledged():
    """Of its two words nobody knows which one the disk would have after a loss of power."""
    disk = Disk(state().saved, works=None)
    step = turn(disk)
    back = sees({"armed": False, "seq": 8})
    assert "h2" not in turn(disk, step.state, back).beat.acks
    disk.finish(written=False, doubtful=True)
    disk.works = False
    assert "h2" not in turn(disk, step.state, back).beat.acks
    disk.works, disk.doubtful = True, False
    assert turn(disk, step.state, back).beat.acks["h2"] == HeartbeatAck(1, 8)
    assert disk.candidates == (disk.saved,)


def test_what_failed_before_it_had_its_name_leaves_no_doubt():
    disk = Disk(state().saved, works=False)
    turn(disk)
    assert disk.candidates == (state().saved,)


def test_the_lead_that_was_granted_late_counts_from_when_it_was_granted():
    before = state(granted_s=NOW_S - 50)
    disk = Disk(before.saved, works=None)
    call = sees(term=2, seq=1)
    step = turn(disk, before, call)
    assert step.state.saved.term == 1 and step.beat.term == 1
    disk.finish(written=True)
    found = state_disk.durable_step(step.state, sees(term=2, seq=1), NOW_S + 5, POLICY, disk)
    assert found.beat.term == 2 and found.beat.granted_s == 5


def test_one_that_can_begin_nothing_says_what_it_said_and_feeds():
    said = replace(made.beat("h1", guests={"web1": made.RUNS}).beat, armed=True)
    found = state_disk.read_only_step(state(), said, sees(), NOW_S, POLICY)
    assert found.beat == replace(said, seq=101, granted_s=1)
    assert [one.kind for one in found.actions] == [FEED]
    assert found.state.lease_from_s == NOW_S - 2 and found.state.saved == state().saved
    broken = replace(sees(), works=False)
    assert not state_disk.read_only_step(state(), said, broken, NOW_S, POLICY).beat.armed


def test_one_that_can_begin_nothing_starts_nothing_and_kills_what_must_not_run():
    kept = {"registry": made.registry({"web1": made.record(epoch=4)})}
    seen = replace(sees(), guests={})
    before = replace(state(), saved=replace(state().saved, **kept))
    kinds = [
        one.kind
        for one in state_disk.read_only_step(before, made.beat().beat, seen, NOW_S, POLICY).actions
    ]
    assert START not in kinds
    gone = made.registry({"web1": made.record()}, {"h1": HostRecord(UP, boot=1, dead_before=2)})
    before = replace(state(), saved=replace(state().saved, registry=gone))
    seen = replace(sees(), guests={"web1": made.RUNS})
    found = state_disk.read_only_step(before, made.beat().beat, seen, NOW_S, POLICY)
    assert [one.kind for one in found.actions] == [KILL]
