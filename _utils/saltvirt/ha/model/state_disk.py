"""Steps of an agent whose disk is slow or accepts no writes: the agent works with the state that is
on the disk.

The agent announces nothing new, grants no lead and casts no votes, and its heartbeats continue: the
acknowledgements for it, and the feeding of the watchdog, wait for no disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import agent, agent_facts, messages, safety
from saltvirt.ha.model.agent_actions import ActionPlanner
from saltvirt.ha.model.agent_view import (
    FEED,
    KILL,
    AgentState,
    AgentView,
    SavedAgentState,
    must_save,
)

if TYPE_CHECKING:
    from saltvirt.ha.model.agent import AgentStep
    from saltvirt.ha.model.messages import Heartbeat
    from saltvirt.ha.model.policy import HaPolicy


class StateDisk:
    """The state on the disk, and the write that is pending. saved: the state that was read from the
    disk.

    A subclass that writes overrides ``begin`` and ``poll``, and reports the result with ``finish``.
    """

    def __init__(self, saved: SavedAgentState) -> None:
        self.saved = saved
        self._under_way: tuple[SavedAgentState, float] | None = None
        self._doubtful: tuple[SavedAgentState, ...] = ()
        self._late: tuple[SavedAgentState, float] | None = None

    def begin(self, saved: SavedAgentState) -> None:
        """Begin to write the state. The write may have ended when this returns."""
        raise NotImplementedError

    def poll(self) -> None:
        """Check whether the pending write has ended."""

    def finish(self, written: bool, doubtful: bool = False) -> None:
        """Record the end of the pending write. doubtful: the write failed, and the state may be on
        the disk nevertheless."""
        if self._under_way is None:
            return
        saved, _ = self._under_way
        if written:
            self.saved, self._doubtful, self._late = saved, (), self._under_way
        elif doubtful and all(
            _host_states(candidate) != _host_states(saved) for candidate in self._doubtful
        ):
            self._doubtful = (*self._doubtful, saved)
        self._under_way = None

    def persist(self, saved: SavedAgentState, granted_s: float) -> bool:
        """Return whether all parts of the state that must not be forgotten are on the disk; if not,
        begin to write the state, unless another write is pending. granted_s: see AgentState."""
        if not (self._under_way or self._doubtful or must_save(self.saved, saved)):
            return True
        if self._under_way is None:
            self._under_way = saved, granted_s
            self.begin(saved)
            if self._late is not None:
                self._late = None
                return True
        return False

    def take_late(self) -> tuple[SavedAgentState, float] | None:
        """Return (the state that reached the disk after ``persist`` returned False, its granted_s),
        or None."""
        self.poll()
        late, self._late = self._late, None
        return late

    @property
    def candidates(self) -> tuple[SavedAgentState, ...]:
        """Return each state that the disk may contain."""
        written = (self._under_way[0],) if self._under_way else ()
        return self.saved, *self._doubtful, *written


def _host_states(saved: SavedAgentState) -> dict[str, tuple[object, ...]]:
    return {name: state.lasting for name, state in saved.host_states.items()}


def durable_step(
    state: AgentState, view: AgentView, now_s: float, policy: HaPolicy, disk: StateDisk
) -> AgentStep:
    """Return a step whose required state is on the disk. If that state is not there yet, or cannot
    be written, return a step that needs no new state on the disk."""
    late = disk.take_late()
    if late is not None:
        lead_lease_s = max(policy.lead_lease_s, state.lead_lease_s or 0)
        state = replace(_caught_up(state, *late), lead_lease_s=lead_lease_s)
    step = agent.step(state, view, now_s, policy)
    if disk.persist(step.state.saved, step.state.granted_s):
        return step
    return agent.step(state, replace(view, disk=disk.candidates), now_s, policy)


def _caught_up(state: AgentState, saved: SavedAgentState, granted_s: float) -> AgentState:
    """Return the state as if the step that requested the write had taken until now.
    Acknowledgements that the agent has sent meanwhile remain valid: their state was on the disk
    before."""
    host_states = dict(saved.host_states)
    for name, host_state in state.saved.host_states.items():
        host_states[name] = max(host_states.get(name, host_state), host_state, key=messages.order)
    granted_s = max(granted_s, state.granted_s)
    return replace(state, saved=replace(saved, host_states=host_states), granted_s=granted_s)


def read_only_step(
    state: AgentState, last_beat: Heartbeat, view: AgentView, now_s: float, policy: HaPolicy
) -> AgentStep:
    """Return a step of an agent that cannot even write the state that its own restart must find:
    the agent repeats its last heartbeat, feeds its watchdog, and begins nothing. last_beat: the
    agent's last heartbeat."""
    state = replace(state)
    agent.renew_lease(state, view)
    state.seq += 1
    agent.record_send(state, now_s, policy)
    granted_s = now_s - state.granted_s
    armed = last_beat.armed and view.works
    beat = replace(last_beat, seq=state.seq, armed=armed, granted_s=granted_s, registry=None)
    lease_s = agent_facts.feed_lease_s(state, policy)
    lease = safety.lease_holds(state.lease_from_s, now_s, lease_s)
    actions = ActionPlanner(state, view, policy, lease, now_s).actions()
    return agent.AgentStep(
        state, beat, tuple(action for action in actions if action.kind in (FEED, KILL))
    )
