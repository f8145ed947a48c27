"""Leadership: at most one master at a time leads, with a lease that a majority of the agents
grants. Before a master acts, it must know the last registry, and enough hosts must have stored its
own decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import safety

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
    from saltvirt.ha.model.registry import Registry
    from saltvirt.ha.model.view import MasterState, View


# a master whose disk was lost may have had terms that no majority ever saw
FORGOTTEN = 1000
# the most by which a term rises at once: no host's report brings it near the largest number
HIGHER = 2**32


def update(state: MasterState, view: View, now_s: float) -> MasterState:
    """Return the state with the master's term, whether it leads, and the registry version on which
    it may rely."""
    state = _with_term(state, view, now_s)
    if not _leads(state, view, now_s):
        return replace(state, leading_s=None, voted_s={}, ran_s={})
    if state.leading_s is None:
        state = replace(state, leading_s=now_s)
    if not state.ready:
        state = _load_registry(state, view, now_s)
    return _count_stored(state, view)


def _with_term(state: MasterState, view: View, now_s: float) -> MasterState:
    """Return the state with a term that no other master has. The master takes a new term if it has
    restarted, or if the lead of another master has expired because that master stopped asking for
    it."""
    beats = [arrived.beat for arrived in view.beats.values()]
    own_term = state.saved.term
    highest = max((beat.term for beat in beats), default=own_term)
    if state.seq > 0 and (
        highest < own_term or (highest == own_term and _is_own(state, beats, own_term))
    ):
        return state
    if state.seq > 0 and (_holds_term(state, view, now_s) or not may_ask(state, view, now_s)):
        return state
    if not own_term and not safety.is_enough(view.beats, _members(state, view), view.sole_master):
        return state  # any term may have been used: a majority knows what was granted
    count, position = len(view.masters), view.masters.index(state.master)
    highest = min(highest, own_term + HIGHER)
    term = max(highest, own_term) + (1 if own_term or not highest else FORGOTTEN)
    term += (position - term) % count
    saved = replace(state.saved, term=term)
    return replace(
        state, saved=saved, seq=0, sent_s={}, leading_s=None, ready=False, committed=0, term_s=now_s
    )


def _holds_term(state: MasterState, view: View, now_s: float) -> bool:
    """Return whether the master keeps its new term for now, whatever terms hosts report: each
    higher term would end what the master has begun, and a host can report a higher term in each
    heartbeat. A leading master keeps its term until each proof that it waits for could be
    complete."""
    if state.term_s is None:
        return False
    leads = state.leading_s is not None
    hold_s = 3 * view.policy.must_have_fired_s(0) if leads else view.policy.lead_lease_s
    return now_s - state.term_s < hold_s


def _is_own(state: MasterState, beats: Iterable[Heartbeat], term: int) -> bool:
    leaders = {beat.leader for beat in beats if beat.term == term}
    return leaders <= {state.master}


def may_ask(state: MasterState, view: View, now_s: float) -> bool:
    """Return whether the master may ask for the lead: a majority of the hosts is heard, and each of
    these hosts has granted the lead to no other master, or its grant has expired. A master that
    does not hear its grants must not keep other masters from leading."""
    lease_s = view.policy.lead_lease_s
    free = [
        host
        for host, arrived in view.beats.items()
        if now_s - arrived.at_s < lease_s
        and (
            arrived.beat.leader in ("", state.master)
            or arrived.beat.granted_s + now_s - arrived.at_s
            >= lease_s + view.policy.beat_s * view.masters.index(state.master)
        )
    ]
    return safety.is_enough(free, _members(state, view), view.sole_master)


def _members(state: MasterState, view: View) -> tuple[str, ...]:
    return state.saved.registry.members or view.members


def _granting(state: MasterState, view: View) -> list[ReceivedHeartbeat]:
    return [
        arrived
        for arrived in view.beats.values()
        if arrived.beat.term == state.saved.term and arrived.beat.leader == state.master
    ]


def _leads(state: MasterState, view: View, now_s: float) -> bool:
    """Return whether a majority has granted the lead to the master, on terms with which the lead is
    still valid. The terms of a single host end no lead that a majority without this host has
    granted."""
    terms = {
        entry.beat.host: view.policy.lead_by([entry.beat.terms]) for entry in _granting(state, view)
    }
    for policy in set(terms.values()):
        hosts = {host for host, entry in terms.items() if entry.lead_s >= policy.lead_s}
        if safety.leads(_granted_s(state, view, hosts), now_s, policy):
            return True
    return False


def _granted_s(state: MasterState, view: View, hosts: Collection[str]) -> float | None:
    """Return when the master sent the last request for the lead that a majority has granted,
    counting only these hosts."""
    claims = {
        arrived.beat.host: arrived.beat.claim
        for arrived in _granting(state, view)
        if arrived.beat.host in hosts
    }
    for seq in sorted(set(claims.values()), reverse=True):
        granted = [host for host, claim in claims.items() if claim >= seq]
        if safety.is_enough(granted, _members(state, view), view.sole_master):
            return state.sent_s.get(seq)
    return None


def _load_registry(state: MasterState, view: View, now_s: float) -> MasterState:
    """Return the state with the last registry on which any host may have acted: the newest registry
    that a majority knows, which are the hosts that granted the lead. The master waits only
    suspect_s for a host that reports a newer registry and does not send it: each majority stores a
    registry on which hosts acted."""
    current = state.saved.registry
    granting = [candidate.beat for candidate in _granting(state, view)]
    stamps = {beat.host: (beat.stored_term, beat.stored) for beat in granting}
    sent = [beat.registry for beat in granting if beat.registry is not None]
    newest = max([current.stamp, *stamps.values()])
    waited = now_s - (state.leading_s or now_s) >= view.policy.suspect_s
    for candidate in sorted([current, *sent], key=lambda registry: registry.stamp, reverse=True):
        hosts = [host for host, stamp in stamps.items() if stamp <= candidate.stamp]
        may_take = waited and safety.is_enough(hosts, _members(state, view), view.sole_master)
        if candidate.stamp == newest or may_take:
            return _adopt_registry(state, view, candidate, now_s)
    return state


def _adopt_registry(
    state: MasterState, view: View, registry: Registry, now_s: float
) -> MasterState:
    adopted = replace(
        registry,
        term=state.saved.term,
        version=registry.version + 1,
        members=registry.members or view.members,
    )
    fenced_s = dict.fromkeys(adopted.fences, now_s)
    return replace(
        state,
        saved=replace(state.saved, registry=adopted),
        ready=True,
        committed=0,
        fenced_s=fenced_s,
    )


def _count_stored(state: MasterState, view: View) -> MasterState:
    """Return the state with the version of the registry that enough hosts store."""
    versions = {
        arrived.beat.host: arrived.beat.stored
        for arrived in _granting(state, view)
        if arrived.beat.stored_term == state.saved.term
    }
    for version in sorted(set(versions.values()), reverse=True):
        hosts = [host for host, stored in versions.items() if stored >= version]
        if safety.is_enough(hosts, _members(state, view), view.sole_master):
            return replace(state, committed=max(version, state.committed))
    return state


def is_settled(state: MasterState) -> bool:
    """Return whether enough hosts store all decisions, so that the next decision may be made."""
    return state.ready and state.committed == state.saved.registry.version
