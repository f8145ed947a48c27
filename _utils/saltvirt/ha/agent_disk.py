"""What an agent does while its disk takes nothing, or is slow: it goes on by what is on the disk.

It says nothing new, grants and promises nothing new, and is heard: what it is acknowledged, and the
watchdog's feeding, wait for no disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha import agent, agent_known, facts, safety
from saltvirt.ha.agent_acts import Acting
from saltvirt.ha.agent_view import FEED, KILL, AgentState, AgentView, Kept, is_news

if TYPE_CHECKING:
    from saltvirt.ha.agent import AgentStep
    from saltvirt.ha.facts import Beat
    from saltvirt.ha.policy import HaPolicy


class Disk:
    """What is on the disk, and what is on its way there. has: what was read from it.

    Who writes overrides ``begin`` and ``look``, and says how it ended by ``ended``.
    """

    def __init__(self, has: Kept) -> None:
        self.has = has
        self._under_way: tuple[Kept, float] | None = None
        self._doubtful: tuple[Kept, ...] = ()
        self._late: tuple[Kept, float] | None = None

    def begin(self, kept: Kept) -> None:
        """Begins to write it. It may have ended when this returns."""
        raise NotImplementedError

    def look(self) -> None:
        """Whether what is under way has ended."""

    def ended(self, written: bool, doubtful: bool = False) -> None:
        """What was under way has ended. doubtful: it failed, and may be there all the same."""
        if self._under_way is None:
            return
        kept, _ = self._under_way
        if written:
            self.has, self._doubtful, self._late = kept, (), self._under_way
        elif doubtful and all(_pledges(one) != _pledges(kept) for one in self._doubtful):
            self._doubtful = (*self._doubtful, kept)
        self._under_way = None

    def keeps(self, kept: Kept, granted_s: float) -> bool:
        """Whether all of it that must not be forgotten is on the disk; else it is on its way there,
        unless another is. granted_s: as AgentState has it."""
        if not (self._under_way or self._doubtful or is_news(self.has, kept)):
            return True
        if self._under_way is None:
            self._under_way = kept, granted_s
            self.begin(kept)
            if self._late is not None:
                self._late = None
                return True
        return False

    def taken(self) -> tuple[Kept, float] | None:
        """(What has come to be on the disk since ``keeps`` denied it, its granted_s), or None."""
        self.look()
        found, self._late = self._late, None
        return found

    @property
    def may_have(self) -> tuple[Kept, ...]:
        """Each that the disk may have."""
        written = (self._under_way[0],) if self._under_way else ()
        return self.has, *self._doubtful, *written


def _pledges(kept: Kept) -> dict[str, tuple[object, ...]]:
    return {name: one.lasting for name, one in kept.pledges.items()}


def turn(
    state: AgentState, view: AgentView, now_s: float, policy: HaPolicy, disk: Disk
) -> AgentStep:
    """A step of which all is on the disk that must be. Where it is not there yet, or cannot be: one
    that needs nothing new there."""
    late = disk.taken()
    if late is not None:
        lead_lease_s = max(policy.lead_lease_s, state.lead_lease_s or 0)
        state = replace(_caught_up(state, *late), lead_lease_s=lead_lease_s)
    step = agent.step(state, view, now_s, policy)
    if disk.keeps(step.state.kept, step.state.granted_s):
        return step
    return agent.step(state, replace(view, disk=disk.may_have), now_s, policy)


def _caught_up(state: AgentState, kept: Kept, granted_s: float) -> AgentState:
    """As if the step that wanted it written had taken so long. What it has acknowledged meanwhile
    stays so: it was on the disk before."""
    pledges = dict(kept.pledges)
    for name, one in state.kept.pledges.items():
        pledges[name] = max(pledges.get(name, one), one, key=facts.order)
    granted_s = max(granted_s, state.granted_s)
    return replace(state, kept=replace(kept, pledges=pledges), granted_s=granted_s)


def still(
    state: AgentState, said: Beat, view: AgentView, now_s: float, policy: HaPolicy
) -> AgentStep:
    """A step of an agent that cannot even write down what its own restart must find: it says what
    it said before, feeds its watchdog, and begins nothing. said: its last beat."""
    state = replace(state)
    agent.acknowledged(state, view)
    state.seq += 1
    agent.sends(state, now_s, policy)
    granted_s = now_s - state.granted_s
    armed = said.armed and view.works
    beat = replace(said, seq=state.seq, armed=armed, granted_s=granted_s, registry=None)
    lease_s = agent_known.feed_lease_s(state, policy)
    lease = safety.lease_holds(state.lease_from_s, now_s, lease_s)
    actions = Acting(state, view, policy, lease, now_s).actions()
    return agent.AgentStep(state, beat, tuple(one for one in actions if one.kind in (FEED, KILL)))
