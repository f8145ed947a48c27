"""What a master decides: ``decide(view, state, now)``, once each beat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha import facts, lead, quiet, safety, wished
from saltvirt.ha.facts import Call, Heard, Pledge, Promise
from saltvirt.ha.guests import GuestCase
from saltvirt.ha.hosts import HostCase, stuck_why
from saltvirt.ha.place import Room
from saltvirt.ha.registry import (
    FENCED,
    FENCING,
    GuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.view import (
    Attempt,
    Decided,
    Decision,
    Fence,
    MasterKept,
    MasterState,
    View,
)

if TYPE_CHECKING:
    from saltvirt.ha.facts import Beat


# one change of a record uses up to so many epochs. A guest that is given to high availability again
# begins above all that it ever had: a host starts no epoch that it has started before
_EPOCHS = 2


def decide(view: View, state: MasterState, now_s: float) -> Decision:
    """The decision: what the master knows afterwards, what it tells the hosts, whom it fences."""
    state = _listened(state, view)
    state = lead.led(state, view, now_s)
    decided: tuple[Decided, ...] = ()
    fences: tuple[Fence, ...] = ()
    if state.leading_s is not None and state.ready:
        state = _promised(state, view, now_s)
        if lead.is_settled(state) and view.known:
            state, decided = _changed(state, view, now_s)
            state, fences = _fenced(state, view, now_s)
    state = replace(state, seq=state.seq + 1)
    lease_s = view.policy.lead_lease_s
    useful = {seq: at for seq, at in state.asked_s.items() if now_s - at < lease_s}
    state = replace(state, asked_s={**useful, state.seq: now_s})
    return Decision(state, _call(state, view, now_s), fences, decided)


def _listened(state: MasterState, view: View) -> MasterState:
    """What hosts said of themselves."""
    acks, pledges = dict(state.acks), dict(state.kept.pledges)
    for host, arrived in view.beats.items():
        beat = arrived.beat
        if _is_newer(beat.pledge, pledges.get(host)):
            pledges[host] = beat.pledge
        if _is_newer(beat, acks.get(host)):
            acks[host] = Heard(beat.boot, beat.seq)
    return replace(state, acks=acks, kept=replace(state.kept, pledges=pledges))


def _is_newer(one: Beat | Pledge, old: Heard | Pledge | None) -> bool:
    return old is None or facts.order(old) < facts.order(one)


def _promised(state: MasterState, view: View, now_s: float) -> MasterState:
    """Since when a majority promises to give up a host that is being fenced."""
    found = {}
    registry = state.kept.registry
    for name in registry.members:
        record = registry.host(name)
        if record.state != FENCING or state.committed < record.ballot:
            continue
        old = state.promised_s.get(name)
        if old is not None and old[0] == record.ballot:
            found[name] = old
        elif HostCase(name, record, registry, state, view, now_s).has_promises():
            found[name] = (record.ballot, now_s)
    return replace(state, promised_s=found)


def _changed(
    state: MasterState, view: View, now_s: float
) -> tuple[MasterState, tuple[Decided, ...]]:
    """The next version of the registry, where anything changes."""
    old = state.kept.registry
    state, registry = _pruned(state, view, now_s)
    state, registry, decided = _hosts(state, registry, view, now_s)
    registry = replace(registry, fences=tuple(sorted(state.fenced_s)))
    state, registry, more = _guests(state, registry, view, now_s)
    if registry == old:
        return state, ()
    registry = replace(registry, version=old.version + 1)
    kept: MasterKept = replace(state.kept, registry=registry)
    return replace(state, kept=kept), (*decided, *more)


def _pruned(state: MasterState, view: View, now_s: float) -> tuple[MasterState, Registry]:
    """What a person changed: armed or not, guests that are no longer of high availability."""
    registry = state.kept.registry
    window_s = view.policy.fence_window_s
    fenced_s = {host: at for host, at in state.fenced_s.items() if now_s - at < window_s}
    if not registry.armed and not view.armed:
        registry = replace(registry, members=_one_changed(registry.members, view.members))
    if not registry.guests.keys() <= view.guests.keys():
        known = {name: one for name, one in registry.guests.items() if name in view.guests}
        registry = replace(registry, guests=known)
    registry = replace(registry, armed=view.armed)
    registry = wished.offered(registry, view.wished, registry.version + 1, view.alone)
    return replace(state, fenced_s=fenced_s), registry


def _one_changed(members: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """One host more or less: so any two majorities, before and after, have a host in common."""
    more = [host for host in wanted if host not in members]
    if more:
        return (*members, more[0])
    less = [host for host in members if host not in wanted]
    return tuple(host for host in members if host not in less[:1])


def _hosts(
    state: MasterState, registry: Registry, view: View, now_s: float
) -> tuple[MasterState, Registry, list[Decided]]:
    decided: list[Decided] = []
    changed: dict[str, HostRecord] = {}
    for name in registry.members:
        old = registry.host(name)
        if quiet.is_host(name, old, state, view, now_s):
            continue
        # state has those that are given up in this very decision
        case = HostCase(name, old, registry, state, view, now_s)
        row = case.next()
        if row is None:
            why = stuck_why(case)
            if why and (not old.stuck or why != old.why):
                changed[name] = replace(old, why=why, stuck=True)
                decided.append(Decided("host", name, old.state, old.state, why))
            continue
        if row.to == FENCING:
            state = replace(state, fenced_s={**state.fenced_s, name: now_s})
        changed[name] = case.changed(row, registry.version + 1)
        decided.append(Decided("host", name, row.state, row.to, row.why))
    registry = replace(registry, hosts={**registry.hosts, **changed})
    return state, registry, decided


def _guests(
    state: MasterState, registry: Registry, view: View, now_s: float
) -> tuple[MasterState, Registry, list[Decided]]:
    decided: list[Decided] = []
    version = state.kept.registry.version + 1
    found, ran_s = dict(registry.guests), {}
    still = quiet.grouped(state.quiet, registry, view)
    still, names = quiet.looked_at(still, registry, view)
    room = None
    for name in sorted(names, key=lambda one: (-view.guests[one].priority, one)):
        record, wanted = found.get(name), view.guests[name]
        room = room or Room(view, registry, now_s)
        before = record or GuestRecord(epoch=_EPOCHS * version)
        case = GuestCase(name, before, wanted, registry, state, view, room, now_s)
        if case.runs():
            since = case.record.epoch, now_s
            ran = state.ran_s.get(name, since)
            ran_s[name] = ran if ran[0] == case.record.epoch else since
        changed = _guest(case, version)
        if record is None or (record.state, record.why) != (changed.state, changed.why):
            old = case.record.state
            decided.append(Decided("guest", name, old, changed.state, changed.why))
        found[name] = changed
    if found != registry.guests:
        registry = replace(registry, guests=found)
    return replace(state, ran_s=ran_s, quiet=still), registry, decided


def _guest(case: GuestCase, version: int) -> GuestRecord:
    return replace(_followed(case, version), agent_silent_s=case.wanted.agent_silent_s)


def _followed(case: GuestCase, version: int) -> GuestRecord:
    row, record = case.next(), case.record
    if row is not None:
        changed = case.changed(row, version)
        return record if replace(changed, changed=record.changed) == record else changed
    if case.places != record.places:
        return replace(record, places=case.places, changed=version)
    return record if record.changed else replace(record, changed=version)


def _fenced(state: MasterState, view: View, now_s: float) -> tuple[MasterState, tuple[Fence, ...]]:
    """The fence agents that are to be run now, of hosts that a majority has given up."""
    fences, attempts = [], dict(state.attempts)
    for host, (ballot, _) in state.promised_s.items():
        levels = view.fence_levels.get(host, 0)
        if state.kept.registry.host(host).state != FENCING or not levels:
            continue
        current = f"{state.kept.term}.{ballot}"
        last = attempts.get(host)
        number = 0
        if last is not None and last.current == current:
            if not _may_retry(last, host, view, now_s):
                continue
            number = last.number + 1
        attempts[host] = Attempt(current, number, now_s)
        fences.append(Fence(host, number % levels, f"{current}.{number}"))
    return replace(state, attempts=attempts), tuple(fences)


def _may_retry(last: Attempt, host: str, view: View, now_s: float) -> bool:
    seen = view.fences.get(host)
    ended = seen is not None and seen.attempt == f"{last.current}.{last.number}"
    waited_s = now_s - last.at_s
    return waited_s >= view.policy.fence_retry_s * (1 if ended else 4)


def _call(state: MasterState, view: View, now_s: float) -> Call:
    leading = state.leading_s is not None and state.ready
    registry = state.kept.registry
    acks = {
        host: ack
        for host, ack in state.acks.items()
        if safety.may_master_acknowledge(
            registry.host(host).state in (FENCING, FENCED)
            and registry.host(host).boot >= ack.boot and leading,
            leading, view.alone,
        )
    }  # fmt: skip
    ballots = {
        name: Promise(one.boot, registry.term, one.ballot)
        for name, one in registry.hosts.items()
        if one.state == FENCING and leading and state.committed >= one.ballot
    }
    return Call(
        state.master,
        state.kept.term,
        state.seq,
        asks=leading
        or (lead.may_ask(state, view, now_s) and not wished.is_blind(registry, view.wished)),
        leading=leading,
        alone=view.alone,
        acks=acks,
        ballots=ballots,
        registry=registry if leading else None,
        committed=state.committed,
        ask_registry=not state.ready,
        ask_wished=wished.to_ask(state, view),
    )


def has_registry(call: Call, beat: Beat | None) -> bool:
    """Whether a host keeps the registry of a call already, by its beat."""
    registry = call.registry
    return (
        registry is not None
        and beat is not None
        and (beat.stored_term, beat.stored) == registry.stamp
    )


def spared(call: Call, beat: Beat | None) -> Call:
    """The call as a host needs it: without the registry that it keeps already."""
    return replace(call, registry=None) if has_registry(call, beat) else call
