"""The states of hosts: the conditions of the table in ``transitions``, and the changes of
records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from saltvirt.ha.model import host_states, messages, safety
from saltvirt.ha.model.messages import Heartbeat, HostState, ReceivedHeartbeat
from saltvirt.ha.model.registry import FENCING, IGNORED, SUSPECTED, HostRecord, Registry
from saltvirt.ha.model.view import MasterState, View


@dataclass(frozen=True)
class HostCase:
    """One host, as the leader sees it now: the argument of the conditions of the table in
    ``transitions``, and of its changes of records."""

    name: str
    record: HostRecord
    registry: Registry
    state: MasterState
    view: View
    now_s: float

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

    @property
    def is_missed(self) -> bool:
        """Return whether the own heartbeats of a majority say that they do not hear this host."""
        peers = [
            peer
            for peer, arrived in self.view.beats.items()
            if peer != self.name
            and self._is_of_late(arrived)
            and (silent_s := arrived.beat.silent_s.get(self.name)) is not None
            and safety.does_not_hear(silent_s, self.view.policy)
        ]
        return self._is_enough(peers)

    @property
    def has_votes(self) -> bool:
        """Return whether a majority has voted to give up the host."""
        question = self.registry.term, self.record.ballot
        voters = [
            peer
            for peer, arrived in self.view.beats.items()
            if peer != self.name
            and (vote := arrived.beat.fence_votes.get(self.name)) is not None
            and (vote.term, vote.ballot) == question
        ]
        return self._is_enough(voters)

    def _is_enough(self, peers: list[str]) -> bool:
        return safety.is_enough(peers, self.registry.members, self.view.sole_master)

    @property
    def is_on_same_terms(self) -> bool:
        """Return whether the host has announced the times and the program that this master uses."""
        return safety.is_on_same_terms(self.host_state, self.view.terms)


# conditions


def is_heard(case: HostCase) -> bool:
    beat = case.fresh
    return beat is not None and beat.boot >= case.record.dead_before and not rests(case)


def has_booted(case: HostCase) -> bool:
    next_boot = max(case.record.boot + 1, case.record.dead_before)
    return case.fresh is not None and case.fresh.boot >= next_boot


def is_silent(case: HostCase) -> bool:
    """Return whether nothing came from the host for suspect_s, counted at the earliest from the
    start of the lead."""
    arrived = case.view.beats.get(case.name)
    led_s = case.state.leading_s or case.now_s
    beat_s = arrived.at_s if arrived else led_s
    heard_s = max(led_s, beat_s, case.view.answered_s.get(case.name, led_s))
    return case.now_s - heard_s >= case.view.policy.suspect_s


def rests(case: HostCase) -> bool:
    return case.host_state.boot == case.record.boot > 0 and safety.is_at_rest(case.host_state)


def in_maintenance(case: HostCase) -> bool:
    return case.name in case.view.maintenance


def has_left_maintenance(case: HostCase) -> bool:
    return not in_maintenance(case)


def is_confirmed(case: HostCase) -> bool:
    boot = case.view.confirmed.get(case.name)
    return boot is not None and boot >= case.record.boot and is_silent(case)


def is_to_be_fenced(case: HostCase) -> bool:
    return not unfenced_reason(case)


def unfenced_reason(case: HostCase) -> str:
    """Return why a silent host is not fenced, or ""."""
    policy = case.view.policy
    if not _is_occupied(case):
        return "it runs no guests of high availability"
    if not case.registry.armed:
        return "high availability is disarmed"
    if not case.is_missed:
        return "no majority of the hosts reports it as silent"
    if not safety.fences_left(case.name, case.state.fenced_s, policy):
        window = f"{policy.fence_window_s:.0f} s"
        return f"{policy.max_fences} other hosts were fenced within {window} (max_fences)"
    return ""


def _is_occupied(case: HostCase) -> bool:
    """Return whether a guest that is not ignored may run on the host."""
    return any(
        location.host == case.name
        for record in case.registry.guests.values()
        if record.state != IGNORED
        for location in record.locations
    )


def is_off(case: HostCase) -> bool:
    result = case.view.fences.get(case.name)
    return result is not None and safety.fence_proves(result.outcome, result.attempt, case.question)


def watchdog_fired(case: HostCase) -> bool:
    since = case.state.voted_s.get(case.name)
    if since is None or since[0] != case.record.ballot:
        return False
    boot, policy = case.record.boot, case.view.policy
    return case.is_on_same_terms and safety.watchdog_proves(
        since[1], case.now_s, case.host_state, boot, policy
    )


def is_heard_by_others(case: HostCase) -> bool:
    return not case.is_missed


def is_disarmed(case: HostCase) -> bool:
    return not case.registry.armed


def is_clean(case: HostCase) -> bool:
    """Return whether the host acts on a registry from after its return and has no strangers. With
    that registry, the host knows each guest that was elsewhere meanwhile, and starts none of them
    from libvirt's old definitions."""
    beat = case.fresh
    return (
        beat is not None
        and beat.boot == case.record.boot
        and beat.applied >= case.record.ballot
        and is_heard(case)
        and not _strangers(case, beat)
    )


def _strangers(case: HostCase, beat: Heartbeat) -> list[str]:
    """Return the guests that are defined on the host and belong to other hosts. A guest that is
    ignored is where an operator put it, and stays there."""
    guests = case.registry.guests
    return [
        name
        for name in beat.guests
        if name in guests
        and guests[name].state != IGNORED
        and guests[name].host not in ("", case.name)
        and guests[name].target != case.name
    ]


# changes of the record


def unchanged(_case: HostCase, record: HostRecord, _version: int) -> HostRecord:
    return record


def know(case: HostCase, record: HostRecord, version: int) -> HostRecord:
    return replace(record, boot=case.view.beats[case.name].beat.boot, ballot=version)


def ask_votes(_case: HostCase, record: HostRecord, version: int) -> HostRecord:
    return replace(record, ballot=version)


def release(_case: HostCase, record: HostRecord, _version: int) -> HostRecord:
    return replace(record, ballot=0)


def give_up(_case: HostCase, record: HostRecord, _version: int) -> HostRecord:
    return replace(record, dead_before=max(record.boot + 1, record.dead_before), ballot=0)


def stuck_reason(case: HostCase) -> str:
    """Return why nothing is done to a silent host, or why no proof is to be expected; or ""."""
    if case.record.state == SUSPECTED:
        return unfenced_reason(case)
    return no_proof_reason(case) if case.record.state == FENCING else ""


def no_proof_reason(case: HostCase) -> str:
    """Return why no proof is to be expected for a host that a majority has given up, or ""."""
    host_state = case.host_state
    armed = host_state.armed and host_state.boot == case.record.boot
    if not case.has_votes or (armed and case.is_on_same_terms):
        return ""
    reason = "its watchdog was not armed"
    if armed:
        reason = (
            f"its watchdog proves nothing: its agent has "
            f"{host_state.terms.differs(case.view.terms)}"
        )
    result = case.view.fences.get(case.name)
    if not case.view.fence_levels.get(case.name):
        return f"it has no fence, and {reason}"
    if result is not None and messages.question(result.attempt) == case.question:
        return f"the result of fencing it is {result.outcome}, and {reason}"
    return ""
