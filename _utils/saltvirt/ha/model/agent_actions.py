"""Actions of an agent: on its watchdog, on its guests, and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.ha.model import agent_facts, quorum, safety
from saltvirt.ha.model.agent_view import (
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
from saltvirt.ha.model.messages import (
    ALIVE,
    CRASHED,
    FAILED,
    OFF,
    RUNNING,
    SHUT_DOWN,
    STOPPED,
    WORKING,
    GuestStatus,
)
from saltvirt.ha.model.policy import FREEZE, MIGRATE
from saltvirt.ha.model.registry import ERROR, IGNORED, NEW

if TYPE_CHECKING:
    from saltvirt.ha.model.policy import HaPolicy
    from saltvirt.ha.model.registry import HaGuestRecord

_ABSENT = GuestStatus(0, OFF)


@dataclass
class ActionPlanner:
    state: AgentState
    view: AgentView
    policy: HaPolicy
    lease: bool
    now_s: float

    def actions(self) -> list[AgentAction]:
        """Return the actions, those on guests first: a guest that must not run is killed before the
        watchdog is fed."""
        registry, state, view = self.state.saved.registry, self.state, self.view
        if safety.is_given_up(registry.host(state.host), state.boot):
            killed = self._kill("this host was given up")
            return killed or [AgentAction(RENEW, reason="none of its guests is running")]
        renews = self._renews()
        if renews:
            return [AgentAction(RENEW, reason=renews)]
        if safety.must_kill(state.believed, view.works, self.lease):
            return self._kill("this host is disconnected, and its watchdog does not work")
        watchdog_actions = self._watchdog()
        if view.request == STOP:
            return watchdog_actions + self._ending()
        if view.request:
            return watchdog_actions + self._shutting_down()
        return watchdog_actions + self._guests()

    def _renews(self) -> str:
        """Return why the agent takes a new boot number although its host has not booted; "" if it
        does not. None of the host's guests runs, so conclusions of other machines from the new
        number are true."""
        state = self.state
        if agent_facts.alive(self.view):
            return ""
        if state.phase == SHUT_DOWN and not self.view.request:
            return "it announced its shutdown, but is still running"
        if state.saved.registry.host(state.host).boot > state.boot:
            return "other machines know a later boot of this host, which was reinstalled"
        return ""

    def _kill(self, reason: str) -> list[AgentAction]:
        return [AgentAction(KILL, name, reason=reason) for name in agent_facts.alive(self.view)]

    def _watchdog(self) -> list[AgentAction]:
        wants = agent_facts.wants_watchdog(self.state, self.view, self.state.phase)
        if not self.view.works:
            if wants and self.view.watchdog and self.lease:
                return [
                    AgentAction(
                        ARM, reason="guests of high availability run here or are to be started here"
                    )
                ]
            return []
        if not wants and self._may_disarm():
            return [
                AgentAction(
                    DISARM,
                    reason=f"no guest needs it, and its peers know it (phase {self.state.phase})",
                )
            ]
        return [AgentAction(FEED)] if self.lease else []

    def _may_disarm(self) -> bool:
        state = self.state
        acks = agent_facts.count_acks(state, self.view, state.unpledged) if state.unpledged else 0
        members = state.saved.registry.members
        return safety.may_disarm(acks, members, self.state.phase == SHUT_DOWN)

    def _is_announced(self) -> bool:
        """Return whether enough peers know the agent's phase. The agent waits for them at most
        shutdown_wait_s."""
        needed = quorum.peers_needed(self.state.saved.registry.members)
        is_acked = agent_facts.count_acks(self.state, self.view, self.state.phase_seq) >= needed
        return is_acked or self._waited(self.policy.shutdown_wait_s)

    def _waited(self, max_s: float) -> bool:
        return self.state.stop_since_s is not None and self.now_s - self.state.stop_since_s >= max_s

    def _ending(self) -> list[AgentAction]:
        """Return the actions before the agent ends: it first kills guests that belong to other
        hosts, according to the newest registry that its peers know."""
        foreign = [action for action in self._guests() if action.kind in (KILL, STOP_GUEST)]
        if foreign or not self._is_current():
            return foreign
        if self.view.works or self.state.believed or not self._is_announced():
            return []
        return [AgentAction(EXIT, reason="its watchdog is disarmed, and its peers know it")]

    def _is_current(self) -> bool:
        """Return whether the agent has its lease, and no peer that it hears acts on a later
        registry."""
        versions = [
            arrived.beat.applied
            for source in (self.view.beats, self.view.stored)
            for arrived in source.values()
        ]
        return self.lease and self.state.saved.registry.version >= max(versions, default=0)

    def _shutting_down(self) -> list[AgentAction]:
        shutdown_policy = agent_facts.way_down(self.view, self.policy)
        running = agent_facts.alive(self.view)
        if self.state.phase == SHUT_DOWN:
            own_guests = [g for g in self.state.saved.registry.guests.values()
                    if g.host == self.state.host and g.run
                    and g.state not in (ERROR, IGNORED)]  # fmt: skip
            rid = shutdown_policy == FREEZE or not own_guests or not self.state.saved.registry.armed
            rid = rid or self._waited(self.policy.shutdown_wait_s)
            if rid and not self.view.works and self._is_announced():
                return [AgentAction(POWER_OFF, reason="none of its guests is running")]
            return [action for action in self._guests() if action.kind == DROP]
        if shutdown_policy == MIGRATE and not self._waited(self.policy.shutdown_wait_s):
            return self._guests()
        reason = f"the host is shutting down: {shutdown_policy}"
        return [AgentAction(STOP_GUEST, name, reason=reason) for name in running]

    def _guests(self) -> list[AgentAction]:
        actions: list[AgentAction] = []
        for name, record in self.state.saved.registry.guests.items():
            status = self.view.guests.get(name)
            action = self._guest(name, record, status)
            actions += [action] if action else []
        return actions

    def _guest(
        self, name: str, record: HaGuestRecord, status: GuestStatus | None
    ) -> AgentAction | None:
        me, boot = self.state.host, self.state.boot
        if record.state in (NEW, IGNORED):
            return None
        is_own = (record.host, record.boot) == (me, boot)
        needs_lease = record.taker == me or name in self.view.leases
        if needs_lease and not (is_own and record.run):
            return self._lease(name, record)
        if is_own:
            return self._own_guest(name, record, status or _ABSENT)
        if status is None or (record.target, record.target_boot) == (me, boot):
            return None  # the guest is on its way
        if status.state not in ALIVE and self._may_be_the_last(name, record):
            return None
        return self._foreign_guest(name, record, status)

    def _may_be_the_last(self, name: str, record: HaGuestRecord) -> bool:
        """Return whether libvirt's definition of the guest on this host may be the only one or the
        newest one: the guest is on no host, and this host had it last. A definition that a host
        kept while it was dead is older than those that masters have sent since: with the old
        definition, the guest would write below an overlay, or resume from outdated memory."""
        if record.host:
            return record.host == self.state.host
        return record.last in (self.state.host, "") or name not in self.view.definitions

    def _lease(self, name: str, record: HaGuestRecord) -> AgentAction | None:
        """Return the action on the lease of the guest's disks: the agent takes the lease if the
        registry asks for it, and holds it until the guest may start here or elsewhere."""
        me = self.state.host
        if record.taker == me:
            asks = self.view.leases.get(name) != record.changed
            reason = "the lease of its disks is requested"
            return AgentAction(LEASE, name, record.changed, reason=reason) if asks else None
        if record.better == me and not record.host:
            return None
        return AgentAction(KILL, name, reason="this host no longer has the lease of its disks")

    def _foreign_guest(self, name: str, record: HaGuestRecord, status: GuestStatus) -> AgentAction:
        """Return the action on a guest that no longer belongs to this host."""
        if status.state in ALIVE:
            well = status.state == RUNNING and not status.trouble
            kind = STOP_GUEST if record.gentle and well else KILL
            return AgentAction(kind, name, status.epoch, reason="it no longer belongs to this host")
        return AgentAction(DROP, name, status.epoch, reason="it is on another host")

    def _own_guest(
        self, name: str, record: HaGuestRecord, status: GuestStatus
    ) -> AgentAction | None:
        """Return the action on a guest that belongs to this host."""
        if not record.run:
            running = status.state == RUNNING
            return AgentAction(STOP_GUEST, name, reason=record.reason) if running else None
        if status.state not in ALIVE:
            may = self._may_start(name, record, status)
            return AgentAction(START, name, record.epoch, reason=record.reason) if may else None
        goes = record.target and status.state == RUNNING and status.migrated <= record.epoch
        if goes:
            return AgentAction(
                SEND_AWAY, name, record.epoch + 1, record.target, reason=record.reason
            )
        if status.epoch >= record.epoch:
            return None
        if record.anew == record.epoch:
            return AgentAction(KILL, name, status.epoch, reason=record.reason)
        return AgentAction(ADOPT, name, record.epoch)

    def _may_start(self, name: str, record: HaGuestRecord, status: GuestStatus) -> bool:
        """Return whether the guest may start here. If the guest ended in the epoch that it is to
        have, the leader decides what follows."""
        has_ended = status.state in (CRASHED, FAILED, STOPPED) and status.epoch >= record.epoch
        may = not has_ended and self.state.phase == WORKING and not self._awaits_watchdog()
        state, tried = self.state, self.state.tried.get(name, 0)
        return may and safety.may_start(record, state.host, state.boot, self.lease, tried)

    def _awaits_watchdog(self) -> bool:
        """Return whether the watchdog device has to be armed before guests start: otherwise no
        other machine could rely on it."""
        wants = agent_facts.wants_watchdog(self.state, self.view, self.state.phase)
        return wants and self.view.watchdog and not self.view.works
