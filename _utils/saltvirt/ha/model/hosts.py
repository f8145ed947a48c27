"""The states of hosts: the conditions of the table in ``transitions``, and the changes of
records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from saltvirt.ha.model import host_states, messages, safety
from saltvirt.ha.model.messages import Heartbeat, HostState, ReceivedHeartbeat
from saltvirt.ha.model.registry import FENCING, IGNORED, SUSPECTED, HostRecord, Registry
from saltvirt.ha.model.transitions import HOSTS, Row, by_state, first
from saltvirt.ha.model.view import MasterState, View

ROWS = by_state(HOSTS)


@dataclass
class HostCase:
    """One host, as the leader sees it now."""

    name: str
    record: HostRecord
    registry: Registry
    state: MasterState
    view: View
    now_s: float

    def next(self) -> Row | None:
        """Return the row of the table whose condition holds now, or None."""
        return first(ROWS, self.record.state, self)

    def changed(self, row: Row, version: int) -> HostRecord:
        """Return the record after the row. version: the version of the registry that will contain
        the record."""
        record = replace(self.record, state=row.to, why=row.reason, stuck=False)
        updated: HostRecord = getattr(self, row.action)(record, version)
        return updated

    # known facts

    @cached_property
    def fresh(self) -> Heartbeat | None:
        """Return the last heartbeat if it came within suspect_s; otherwise None."""
        arrived = self.view.beats.get(self.name)
        return arrived.beat if arrived and self._is_of_late(arrived) else None

    def _is_of_late(self, arrived: ReceivedHeartbeat) -> bool:
        return self.now_s - arrived.at_s < self.view.policy.suspect_s

    @cached_property
    def host_state(self) -> HostState:
        """Return the state that the host has last reported of itself, as far as the leader may
        believe it."""
        return host_states.believed_state(self.name, self.state, self.view)

    @property
    def question(self) -> str:
        """Return the question (``TERM.BALLOT``) with which the other hosts were asked to give up
        this host; the names of fence attempts begin with it."""
        return f"{self.registry.term}.{self.record.ballot}"

    def _not_hearing(self) -> list[str]:
        """Return the other hosts whose own heartbeats say that they do not hear this host."""
        peers = []
        for peer, arrived in self.view.beats.items():
            silent_s = arrived.beat.silent_s.get(self.name)
            if peer != self.name and self._is_of_late(arrived) and silent_s is not None:
                peers += [peer] if safety.does_not_hear(silent_s, self.view.policy) else []
        return peers

    def _is_enough(self, peers: list[str]) -> bool:
        return safety.is_enough(peers, self.registry.members, self.view.sole_master)

    # conditions

    def is_heard(self) -> bool:
        beat = self.fresh
        return beat is not None and beat.boot >= self.record.gone and not self.rests()

    def has_booted(self) -> bool:
        next_boot = max(self.record.boot + 1, self.record.gone)
        return self.fresh is not None and self.fresh.boot >= next_boot

    def is_silent(self) -> bool:
        """Return whether nothing came from the host for suspect_s, counted at the earliest from the
        start of the lead."""
        arrived = self.view.beats.get(self.name)
        led_s = self.state.leading_s or self.now_s
        beat_s = arrived.at_s if arrived else led_s
        heard_s = max(led_s, beat_s, self.view.answered_s.get(self.name, led_s))
        return self.now_s - heard_s >= self.view.policy.suspect_s

    def rests(self) -> bool:
        return self.host_state.boot == self.record.boot > 0 and safety.is_at_rest(self.host_state)

    def works(self) -> bool:
        return self.is_heard()

    def in_maintenance(self) -> bool:
        return self.name in self.view.maintenance

    def not_maintained(self) -> bool:
        return not self.in_maintenance()

    def is_confirmed(self) -> bool:
        boot = self.view.confirmed.get(self.name)
        return boot is not None and boot >= self.record.boot and self.is_silent()

    def is_to_be_fenced(self) -> bool:
        return not self.unfenced_reason()

    def unfenced_reason(self) -> str:
        """Return why a silent host is not fenced, or ""."""
        policy = self.view.policy
        if not self._is_occupied():
            return "no guest of high availability runs there"
        if not self.registry.armed:
            return "high availability is disarmed"
        if not self._is_enough(self._not_hearing()):
            return "no majority of the hosts says that it is gone"
        if not safety.fences_left(self.name, self.state.fenced_s, policy):
            return f"{policy.max_fences} others were fenced in {policy.fence_window_s:.0f} s"
        return ""

    def _is_occupied(self) -> bool:
        """Return whether a guest that is not ignored may run on the host."""
        return any(
            location.host == self.name
            for record in self.registry.guests.values()
            if record.state != IGNORED
            for location in record.places
        )

    def is_off(self) -> bool:
        result = self.view.fences.get(self.name)
        return result is not None and safety.fence_proves(
            result.outcome, result.attempt, self.question
        )

    def watchdog_fired(self) -> bool:
        since = self.state.voted_s.get(self.name)
        if since is None or since[0] != self.record.ballot:
            return False
        boot, policy = self.record.boot, self.view.policy
        return self.is_on_same_terms() and safety.watchdog_proves(
            since[1], self.now_s, self.host_state, boot, policy
        )

    def is_on_same_terms(self) -> bool:
        """Return whether the host has announced the times and the program that this master uses."""
        return safety.is_on_same_terms(self.host_state, self.view.terms)

    def is_heard_by_others(self) -> bool:
        return not self._is_enough(self._not_hearing())

    def is_disarmed(self) -> bool:
        return not self.registry.armed

    def is_clean(self) -> bool:
        """Return whether the host acts on a registry from after its return and has no strangers.
        With that registry, the host knows each guest that was elsewhere meanwhile, and starts none
        of them from libvirt's old definitions."""
        beat = self.fresh
        return (
            beat is not None
            and beat.boot == self.record.boot
            and beat.applied >= self.record.ballot
            and self.is_heard()
            and not self._strangers(beat)
        )

    def _strangers(self, beat: Heartbeat) -> list[str]:
        """Return the guests that are defined on the host and live elsewhere. A guest that is
        ignored is where a person wants it, and stays there."""
        guests = self.registry.guests
        return [
            name
            for name in beat.guests
            if name in guests
            and guests[name].state != IGNORED
            and guests[name].host not in ("", self.name)
            and guests[name].target != self.name
        ]

    def has_votes(self) -> bool:
        """Return whether a majority has promised not to acknowledge the host any more."""
        voters = []
        for peer, arrived in self.view.beats.items():
            vote = arrived.beat.promises.get(self.name)
            if (
                vote is not None
                and peer != self.name
                and (vote.term, vote.ballot) == (self.registry.term, self.record.ballot)
            ):
                voters.append(peer)
        return self._is_enough(voters)

    # changes of the record

    def unchanged(self, record: HostRecord, _version: int) -> HostRecord:
        return record

    def know(self, record: HostRecord, version: int) -> HostRecord:
        return replace(record, boot=self.view.beats[self.name].beat.boot, ballot=version)

    def ask_votes(self, record: HostRecord, version: int) -> HostRecord:
        return replace(record, ballot=version)

    def release(self, record: HostRecord, _version: int) -> HostRecord:
        return replace(record, ballot=0)

    def give_up(self, record: HostRecord, _version: int) -> HostRecord:
        return replace(record, gone=max(record.boot + 1, record.gone), ballot=0)


def stuck_reason(case: HostCase) -> str:
    """Return why nothing is done to a silent host, or why no proof is to be expected; or ""."""
    if case.record.state == SUSPECTED:
        return case.unfenced_reason()
    return no_proof_reason(case) if case.record.state == FENCING else ""


def no_proof_reason(case: HostCase) -> str:
    """Return why no proof is to be expected for a host that a majority has given up, or ""."""
    host_state = case.host_state
    armed = host_state.armed and host_state.boot == case.record.boot
    if not case.has_votes() or (armed and case.is_on_same_terms()):
        return ""
    reason = "it had no watchdog that was armed"
    if armed:
        reason = (
            f"its watchdog proves nothing: its agent has "
            f"{host_state.terms.differs(case.view.terms)}"
        )
    result = case.view.fences.get(case.name)
    if not case.view.fence_levels.get(case.name):
        return f"it has no fence, and {reason.removeprefix('it ')}"
    if result is not None and messages.question(result.attempt) == case.question:
        return f"its fence says {result.outcome}, and {reason}"
    return ""
