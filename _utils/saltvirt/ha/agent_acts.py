"""What an agent does: its watchdog, its guests, its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.ha import agent_known, quorum, safety
from saltvirt.ha.agent_view import (
    ADOPT,
    ARM,
    DISARM,
    DROP,
    EXIT,
    FEED,
    KILL,
    LEASE,
    POWER_OFF,
    RENEW,
    SEND_AWAY,
    START,
    STOP,
    STOP_GUEST,
    AgentAction,
    AgentState,
    AgentView,
)
from saltvirt.ha.facts import (
    ALIVE,
    CRASHED,
    FAILED,
    OFF,
    OVER,
    RUNNING,
    STOPPED,
    WORKING,
    GuestThere,
)
from saltvirt.ha.policy import FREEZE, MIGRATE
from saltvirt.ha.registry import ERROR, IGNORED, NEW

if TYPE_CHECKING:
    from saltvirt.ha.policy import HaPolicy
    from saltvirt.ha.registry import GuestRecord

_NOT_THERE = GuestThere(0, OFF)


@dataclass
class Acting:
    state: AgentState
    view: AgentView
    policy: HaPolicy
    lease: bool
    now_s: float

    def actions(self) -> list[AgentAction]:
        """Guests first: what must not run is killed before the watchdog is fed."""
        registry, state, view = self.state.kept.registry, self.state, self.view
        if safety.is_given_up(registry.host(state.host), state.boot):
            killed = self._kill("the others have proven that this host is gone")
            return killed or [AgentAction(RENEW, why="none of its guests runs any more")]
        renews = self._renews()
        if renews:
            return [AgentAction(RENEW, why=renews)]
        if safety.must_kill(state.believed, view.works, self.lease):
            return self._kill("it is cut off, and its watchdog does not work")
        done = self._watchdog()
        if view.asked == STOP:
            return done + self._ending()
        if view.asked:
            return done + self._shutting_down()
        return done + self._guests()

    def _renews(self) -> str:
        """Why it counts as started anew, though its host has not booted; or nothing. None of its
        guests runs, so what others conclude from that is true."""
        state = self.state
        if agent_known.alive(self.view):
            return ""
        if state.phase == OVER and not self.view.asked:
            return "it said that none of its guests would run in this boot, and does not go down"
        if state.kept.registry.host(state.host).boot > state.boot:
            return "others know a later start of it: it was installed anew, its clock behind"
        return ""

    def _kill(self, why: str) -> list[AgentAction]:
        return [AgentAction(KILL, name, why=why) for name in agent_known.alive(self.view)]

    def _watchdog(self) -> list[AgentAction]:
        wants = agent_known.wants_watchdog(self.state, self.view, self.state.phase)
        if not self.view.works:
            if wants and self.view.watchdog and self.lease:
                return [AgentAction(ARM, why="guests of high availability run here, or are to")]
            return []
        if not wants and self._may_disarm():
            return [
                AgentAction(DISARM, why=f"no guest needs it, and it is known: {self.state.phase}")
            ]
        return [AgentAction(FEED)] if self.lease else []

    def _may_disarm(self) -> bool:
        state = self.state
        known = agent_known.knowing(state, self.view, state.unpledged) if state.unpledged else 0
        members = state.kept.registry.members
        return safety.may_disarm(known, members, self.state.phase == OVER)

    def _is_told(self) -> bool:
        """Enough know what it is about; for that it does not wait without end."""
        needed = quorum.peers_needed(self.state.kept.registry.members)
        known = agent_known.knowing(self.state, self.view, self.state.phase_seq) >= needed
        return known or self._waited(self.policy.shutdown_wait_s)

    def _waited(self, most_s: float) -> bool:
        return self.state.asked_s is not None and self.now_s - self.state.asked_s >= most_s

    def _ending(self) -> list[AgentAction]:
        """Before the agent ends, what lives elsewhere is killed, by what its peers know by now."""
        foreign = [one for one in self._guests() if one.kind in (KILL, STOP_GUEST)]
        if foreign or not self._is_current():
            return foreign
        if self.view.works or self.state.believed or not self._is_told():
            return []
        return [AgentAction(EXIT, why="its watchdog is at rest, and that is known")]

    def _is_current(self) -> bool:
        """No peer that it hears acts by a later registry."""
        known = [
            arrived.beat.applied
            for source in (self.view.beats, self.view.stored)
            for arrived in source.values()
        ]
        return self.lease and self.state.kept.registry.version >= max(known, default=0)

    def _shutting_down(self) -> list[AgentAction]:
        way = agent_known.way_down(self.view, self.policy)
        running = agent_known.alive(self.view)
        if self.state.phase == OVER:
            mine = [g for g in self.state.kept.registry.guests.values()
                    if g.host == self.state.host and g.run
                    and g.state not in (ERROR, IGNORED)]  # fmt: skip
            rid = way == FREEZE or not mine or not self.state.kept.registry.armed
            rid = rid or self._waited(self.policy.shutdown_wait_s)
            if rid and not self.view.works and self._is_told():
                return [AgentAction(POWER_OFF, why="none of its guests runs here any more")]
            return [one for one in self._guests() if one.kind == DROP]
        if way == MIGRATE and not self._waited(self.policy.shutdown_wait_s):
            return self._guests()
        why = f"the host shuts down: {way}"
        return [AgentAction(STOP_GUEST, name, why=why) for name in running]

    def _guests(self) -> list[AgentAction]:
        found: list[AgentAction] = []
        for name, record in self.state.kept.registry.guests.items():
            there = self.view.guests.get(name)
            action = self._guest(name, record, there)
            found += [action] if action else []
        return found

    def _guest(
        self, name: str, record: GuestRecord, there: GuestThere | None
    ) -> AgentAction | None:
        me, boot = self.state.host, self.state.boot
        if record.state in (NEW, IGNORED):
            return None
        is_own = (record.host, record.boot) == (me, boot)
        asked = record.taker == me or name in self.view.leases
        if asked and not (is_own and record.run):
            return self._lease(name, record)
        if is_own:
            return self._own(name, record, there or _NOT_THERE)
        if there is None or (record.target, record.target_boot) == (me, boot):
            return None  # it is on its way
        if there.state not in ALIVE and self._may_be_the_last(name, record):
            return None
        return self._foreign(name, record, there)

    def _may_be_the_last(self, name: str, record: GuestRecord) -> bool:
        """The definition that libvirt has here may be the only one, or the newest: the guest lives
        nowhere, and was here last. What a host has kept over a death is older than what was told
        since: by it a guest would write below an overlay, or go on with memory of long ago."""
        if record.host:
            return record.host == self.state.host
        return record.last in (self.state.host, "") or name not in self.view.definitions

    def _lease(self, name: str, record: GuestRecord) -> AgentAction | None:
        """It is got when it is asked for, and kept until the guest may start here or elsewhere."""
        me = self.state.host
        if record.taker == me:
            asks = self.view.leases.get(name) != record.changed
            why = "its disks' lease is asked for"
            return AgentAction(LEASE, name, record.changed, why=why) if asks else None
        if record.better == me and not record.host:
            return None
        return AgentAction(KILL, name, why="its disks' lease is no longer this host's")

    def _foreign(self, name: str, record: GuestRecord, there: GuestThere) -> AgentAction:
        """A guest that is no longer this host's."""
        if there.state in ALIVE:
            well = there.state == RUNNING and not there.trouble
            kind = STOP_GUEST if record.gentle and well else KILL
            return AgentAction(kind, name, there.epoch, why="it is no longer this host's")
        return AgentAction(DROP, name, there.epoch, why="it lives elsewhere")

    def _own(self, name: str, record: GuestRecord, there: GuestThere) -> AgentAction | None:
        """A guest that is this host's."""
        if not record.run:
            running = there.state == RUNNING
            return AgentAction(STOP_GUEST, name, why=record.why) if running else None
        if there.state not in ALIVE:
            may = self._may_start(name, record, there)
            return AgentAction(START, name, record.epoch, why=record.why) if may else None
        goes = record.target and there.state == RUNNING and there.migrated <= record.epoch
        if goes:
            return AgentAction(SEND_AWAY, name, record.epoch + 1, record.target, why=record.why)
        if there.epoch >= record.epoch:
            return None
        if record.anew == record.epoch:
            return AgentAction(KILL, name, there.epoch, why=record.why)
        return AgentAction(ADOPT, name, record.epoch)

    def _may_start(self, name: str, record: GuestRecord, there: GuestThere) -> bool:
        """Of one that ended in the epoch that it is to have, the leader decides what follows."""
        ended = there.state in (CRASHED, FAILED, STOPPED) and there.epoch >= record.epoch
        may = not ended and self.state.phase == WORKING and not self._awaits_watchdog()
        state, tried = self.state, self.state.tried.get(name, 0)
        return may and safety.may_start(record, state.host, state.boot, self.lease, tried)

    def _awaits_watchdog(self) -> bool:
        """The one that there is has to be armed first: else nobody could count on it."""
        wants = agent_known.wants_watchdog(self.state, self.view, self.state.phase)
        return wants and self.view.watchdog and not self.view.works
