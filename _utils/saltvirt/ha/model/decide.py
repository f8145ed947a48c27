"""Decisions of a master: ``decide(view, state, now_s)``, once for each heartbeat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import committed_config, guest_placing, idle, leadership, messages, safety
from saltvirt.ha.model.guest_case import GuestCase
from saltvirt.ha.model.host_capacity import HostCapacity
from saltvirt.ha.model.hosts import HostCase, stuck_reason
from saltvirt.ha.model.messages import FenceVote, HeartbeatAck, HostState, LeaderMessage
from saltvirt.ha.model.registry import FENCED, FENCING, HaGuestRecord, HostRecord, Registry
from saltvirt.ha.model.transitions import next_guest_row, next_host_row
from saltvirt.ha.model.view import (
    Fence,
    FenceAttempt,
    MasterState,
    MasterStep,
    SavedMasterState,
    StateChange,
    View,
)

if TYPE_CHECKING:
    from saltvirt.ha.model.messages import Heartbeat


# the most epochs that one change of a record uses. If a guest is given to high availability again,
# its epochs begin above all its earlier ones: a host starts no epoch that it has started before
_EPOCHS = 2


def decide(view: View, state: MasterState, now_s: float) -> MasterStep:
    """Return the decision: the master's new state, its message to the hosts, and the hosts to
    fence."""
    state = _hear_hosts(state, view)
    state = leadership.update(state, view, now_s)
    changes: tuple[StateChange, ...] = ()
    fences: tuple[Fence, ...] = ()
    if state.leading_s is not None and state.ready:
        state = _count_votes(state, view, now_s)
        if leadership.is_settled(state) and view.config_known:
            state, changes = _next_registry(state, view, now_s)
            state, fences = _start_fences(state, view, now_s)
    state = replace(state, seq=state.seq + 1)
    lease_s = view.policy.lead_lease_s
    useful = {seq: sent_s for seq, sent_s in state.sent_s.items() if now_s - sent_s < lease_s}
    state = replace(state, sent_s={**useful, state.seq: now_s})
    return MasterStep(state, _message(state, view, now_s), fences, changes)


def _hear_hosts(state: MasterState, view: View) -> MasterState:
    """Return the state with what hosts have reported of themselves."""
    acks, host_states = dict(state.acks), dict(state.saved.host_states)
    for host, arrived in view.beats.items():
        beat = arrived.beat
        if _is_newer(beat.host_state, host_states.get(host)):
            host_states[host] = beat.host_state
        if _is_newer(beat, acks.get(host)):
            acks[host] = HeartbeatAck(beat.boot, beat.seq)
    return replace(state, acks=acks, saved=replace(state.saved, host_states=host_states))


def _is_newer(new: Heartbeat | HostState, old: HeartbeatAck | HostState | None) -> bool:
    return old is None or messages.order(old) < messages.order(new)


def _count_votes(state: MasterState, view: View, now_s: float) -> MasterState:
    """Return the state with the times since when a majority votes to give up each host that is
    being fenced."""
    voted_s = {}
    registry = state.saved.registry
    for name in registry.members:
        record = registry.host(name)
        if record.state != FENCING or state.committed < record.ballot:
            continue
        old = state.voted_s.get(name)
        if old is not None and old[0] == record.ballot:
            voted_s[name] = old
        elif HostCase(name, record, registry, state, view, now_s).has_votes:
            voted_s[name] = (record.ballot, now_s)
    return replace(state, voted_s=voted_s)


def _next_registry(
    state: MasterState, view: View, now_s: float
) -> tuple[MasterState, tuple[StateChange, ...]]:
    """Return the state with the next version of the registry, if anything changes."""
    old = state.saved.registry
    state, registry = _apply_config(state, view, now_s)
    state, registry, changes = _hosts(state, registry, view, now_s)
    registry = replace(registry, fences=tuple(sorted(state.fenced_s)))
    state, registry, guest_changes = _guests(state, registry, view, now_s)
    if registry == old:
        return state, ()
    registry = replace(registry, version=old.version + 1)
    saved: SavedMasterState = replace(state.saved, registry=registry)
    return replace(state, saved=saved), (*changes, *guest_changes)


def _apply_config(state: MasterState, view: View, now_s: float) -> tuple[MasterState, Registry]:
    """Return the state and the registry with the changes that operators requested: armed or not,
    members, guests that were removed from high availability, and the offered configuration."""
    registry = state.saved.registry
    window_s = view.policy.fence_window_s
    fenced_s = {
        host: fenced_at_s
        for host, fenced_at_s in state.fenced_s.items()
        if now_s - fenced_at_s < window_s
    }
    if not registry.armed and not view.armed:
        registry = replace(registry, members=_change_member(registry.members, view.members))
    if not registry.guests.keys() <= view.guests.keys():
        records = {name: record for name, record in registry.guests.items() if name in view.guests}
        registry = replace(registry, guests=records)
    registry = replace(registry, armed=view.armed)
    registry = committed_config.with_offer(
        registry, view.own_config, registry.version + 1, view.sole_master
    )
    return replace(state, fenced_s=fenced_s), registry


def _change_member(members: tuple[str, ...], target_members: tuple[str, ...]) -> tuple[str, ...]:
    """Return the members with one host added or removed: any two majorities, before and after the
    change, then have a host in common."""
    added = [host for host in target_members if host not in members]
    if added:
        return (*members, added[0])
    removed = [host for host in members if host not in target_members]
    return tuple(host for host in members if host not in removed[:1])


def _hosts(
    state: MasterState, registry: Registry, view: View, now_s: float
) -> tuple[MasterState, Registry, list[StateChange]]:
    changes: list[StateChange] = []
    records: dict[str, HostRecord] = {}
    for name in registry.members:
        old = registry.host(name)
        if idle.is_idle_host(name, old, state, view, now_s):
            continue
        # state includes the hosts that are given up in this same decision
        case = HostCase(name, old, registry, state, view, now_s)
        row = next_host_row(case)
        if row is None:
            reason = stuck_reason(case)
            if reason and (not old.stuck or reason != old.reason):
                records[name] = replace(old, reason=reason, stuck=True)
                changes.append(StateChange("host", name, old.state, old.state, reason))
            continue
        if row.to == FENCING:
            state = replace(state, fenced_s={**state.fenced_s, name: now_s})
        records[name] = row.apply(case, registry.version + 1)
        changes.append(StateChange("host", name, old.state, row.to, row.reason))
    registry = replace(registry, hosts={**registry.hosts, **records})
    return state, registry, changes


def _guests(
    state: MasterState, registry: Registry, view: View, now_s: float
) -> tuple[MasterState, Registry, list[StateChange]]:
    changes: list[StateChange] = []
    version = state.saved.registry.version + 1
    records, ran_s = dict(registry.guests), {}
    idle_guests = idle.grouped(state.idle, registry, view)
    idle_guests, names = idle.select(idle_guests, registry, view)
    capacity = None
    for name in sorted(names, key=lambda guest: (-view.guests[guest].priority, guest)):
        record, config = records.get(name), view.guests[name]
        capacity = capacity or HostCapacity(view, registry, now_s)
        before = record or HaGuestRecord(epoch=_EPOCHS * version)
        case = GuestCase(name, before, config, registry, state, view, capacity, now_s)
        if guest_placing.runs(case):
            since = case.record.epoch, now_s
            running_since = state.ran_s.get(name, since)
            ran_s[name] = running_since if running_since[0] == case.record.epoch else since
        changed = _guest(case, version)
        if record is None or (record.state, record.reason) != (changed.state, changed.reason):
            old = case.record.state
            changes.append(StateChange("guest", name, old, changed.state, changed.reason))
        records[name] = changed
    if records != registry.guests:
        registry = replace(registry, guests=records)
    return replace(state, ran_s=ran_s, idle=idle_guests), registry, changes


def _guest(case: GuestCase, version: int) -> HaGuestRecord:
    return replace(_next_record(case, version), agent_silent_s=case.config.agent_silent_s)


def _next_record(case: GuestCase, version: int) -> HaGuestRecord:
    row, record = next_guest_row(case), case.record
    if row is not None:
        changed = row.apply(case, version)
        return record if replace(changed, changed=record.changed) == record else changed
    if case.locations != record.locations:
        return replace(record, locations=case.locations, changed=version)
    return record if record.changed else replace(record, changed=version)


def _start_fences(
    state: MasterState, view: View, now_s: float
) -> tuple[MasterState, tuple[Fence, ...]]:
    """Return the fence agents that are to be run now, for hosts that a majority has given up."""
    fences, attempts = [], dict(state.attempts)
    for host, (ballot, _) in state.voted_s.items():
        levels = view.fence_levels.get(host, 0)
        if state.saved.registry.host(host).state != FENCING or not levels:
            continue
        current = f"{state.saved.term}.{ballot}"
        last = attempts.get(host)
        number = 0
        if last is not None and last.current == current:
            if not _may_retry(last, host, view, now_s):
                continue
            number = last.number + 1
        attempts[host] = FenceAttempt(current, number, now_s)
        fences.append(Fence(host, number % levels, f"{current}.{number}"))
    return replace(state, attempts=attempts), tuple(fences)


def _may_retry(last: FenceAttempt, host: str, view: View, now_s: float) -> bool:
    result = view.fences.get(host)
    has_ended = result is not None and result.attempt == f"{last.current}.{last.number}"
    waited_s = now_s - last.at_s
    return waited_s >= view.policy.fence_retry_s * (1 if has_ended else 4)


def _message(state: MasterState, view: View, now_s: float) -> LeaderMessage:
    leading = state.leading_s is not None and state.ready
    registry = state.saved.registry
    acks = {
        host: ack
        for host, ack in state.acks.items()
        if safety.may_master_acknowledge(
            registry.host(host).state in (FENCING, FENCED)
            and registry.host(host).boot >= ack.boot and leading,
            leading, view.sole_master,
        )
    }  # fmt: skip
    ballots = {
        name: FenceVote(record.boot, registry.term, record.ballot)
        for name, record in registry.hosts.items()
        if record.state == FENCING and leading and state.committed >= record.ballot
    }
    return LeaderMessage(
        state.master,
        state.saved.term,
        state.seq,
        asks=leading
        or (
            leadership.may_ask(state, view, now_s)
            and not committed_config.is_blind(registry, view.own_config)
        ),
        leading=leading,
        sole_master=view.sole_master,
        acks=acks,
        ballots=ballots,
        registry=registry if leading else None,
        committed=state.committed,
        ask_registry=not state.ready,
        ask_config=committed_config.host_to_ask(state, view),
    )


def has_registry(message: LeaderMessage, beat: Heartbeat | None) -> bool:
    """Return whether a host's heartbeat says that the host already stores the registry of the
    message."""
    registry = message.registry
    return (
        registry is not None
        and beat is not None
        and (beat.stored_term, beat.stored) == registry.stamp
    )


def without_stored(message: LeaderMessage, beat: Heartbeat | None) -> LeaderMessage:
    """Return the message as the host needs it: without the registry if the host already stores
    that."""
    return replace(message, registry=None) if has_registry(message, beat) else message
