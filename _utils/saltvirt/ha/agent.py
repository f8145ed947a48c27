"""What the agent of a host does: one step each beat, from what it has heard and what libvirt and
the watchdog's device say.

It is a service of its own: the minion, and what Salt does to its modules, are nothing to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from saltvirt.ha import agent_known, facts, safety
from saltvirt.ha import wished as desired
from saltvirt.ha.agent_acts import Acting
from saltvirt.ha.agent_view import (
    REBOOT,
    SHUTDOWN,
    START,
    STOP,
    AgentAction,
    AgentState,
    AgentView,
    Kept,
)
from saltvirt.ha.facts import LEAVING, OFF, OVER, RESTING, WORKING, Beat, GuestThere, Heard
from saltvirt.ha.policy import FREEZE, MIGRATE

if TYPE_CHECKING:
    from saltvirt.ha.facts import Call
    from saltvirt.ha.policy import HaPolicy


@dataclass(frozen=True)
class AgentStep:
    """In this order: state.kept is written down, beat is sent, actions are carried out."""

    state: AgentState
    beat: Beat
    actions: tuple[AgentAction, ...]


def step(before: AgentState, view: AgentView, now_s: float, policy: HaPolicy) -> AgentStep:
    """One step: what it has heard is followed, then it says what it knows and acts."""
    state = replace(before)
    _listen(state, view)
    _follow(state, view, now_s, policy)
    acknowledged(state, view)
    _announce(state, view, policy)
    _turn(state, view, now_s)
    armed = view.works and agent_known.wants_watchdog(state, view, state.phase)
    _pledge(state, view, armed)
    state.tried = _tried(state, view)
    beat = _beat(state, view, armed, now_s, policy)
    sends(state, now_s, policy)
    feed_lease_s = agent_known.feed_lease_s(state, policy)
    lease = safety.lease_holds(state.lease_from_s, now_s, feed_lease_s)
    actions = Acting(state, view, policy, lease, now_s).actions()
    state.tried |= {one.guest: one.epoch for one in actions if one.kind == START}
    return AgentStep(state, beat, tuple(actions))


def _tried(state: AgentState, view: AgentView) -> dict[str, int]:
    here = {name: there.epoch for name, there in view.guests.items() if there.state != OFF}
    return {**state.tried, **{n: max(e, state.tried.get(n, 0)) for n, e in here.items()}}


def _told(state: AgentState, view: AgentView) -> dict[str, GuestThere]:
    """Guests as libvirt has them, and those that were here and are no longer."""
    gone = {
        name: GuestThere(state.tried[name], facts.STOPPED)
        for name, record in state.kept.registry.guests.items()
        if record.host == state.host and name in state.tried and name not in view.guests
    }
    return {**view.guests, **gone}


# -- what it hears ---------------------------------------------------------------------------------


def _listen(state: AgentState, view: AgentView) -> None:
    """Beats of peers: whom it acknowledges, what they said of themselves."""
    acks, pledges, heard_s = dict(state.acks), dict(state.kept.pledges), dict(state.heard_s)
    for source in (view.beats, view.stored):
        for host, arrived in source.items():
            beat = arrived.beat
            if not _may_be_kept(beat, view):
                continue
            if safety.may_acknowledge(state.kept.promises.get(host), beat.boot):
                heard = Heard(beat.boot, beat.seq)
                acks[host] = max(acks.get(host, heard), heard, key=facts.order)
                pledges[host] = max(pledges.get(host, beat.pledge), beat.pledge, key=facts.order)
    for host, arrived in view.beats.items():
        heard_s[host] = max(arrived.at_s, heard_s.get(host, arrived.at_s))
    state.acks, state.heard_s = acks, heard_s
    state.kept = replace(state.kept, pledges=pledges)


def _may_be_kept(beat: Beat, view: AgentView) -> bool:
    """What a peer says of itself is on the disk before it is acknowledged: where nothing new can be
    written down, only what the disk has, whatever became of what was being written."""
    found = [one.pledges.get(beat.host) for one in view.disk or ()]
    return all(one is not None and one.lasting == beat.pledge.lasting for one in found)


def _follow(state: AgentState, view: AgentView, now_s: float, policy: HaPolicy) -> None:
    """Calls of masters: grants the lead, promises, keeps the registry. All that must be written
    down first."""
    for arrived in view.calls.values() if view.disk is None else ():
        call, kept = arrived.call, state.kept
        granted_s = now_s - state.granted_s
        if not call.asks or not safety.may_grant(call, kept.term, kept.leader):
            continue
        # a shorter time of new settings counts for the next grant
        lead_lease_s = max(policy.lead_lease_s, state.lead_lease_s or 0)
        if not safety.lead_is_over(call, kept.leader, granted_s, lead_lease_s):
            continue
        if call.term == kept.term and call.seq <= kept.claim:
            continue  # it was answered before
        kept = replace(kept, term=call.term, leader=call.master, claim=call.seq)
        state.kept, state.granted_s, state.lead_lease_s = kept, now_s, policy.lead_lease_s
        if call.leading:
            state.kept = _obey(state, call, now_s, policy)


def _obey(state: AgentState, call: Call, now_s: float, policy: HaPolicy) -> Kept:
    promises = {}
    for host, asked in call.ballots.items():
        silent = now_s - state.heard_s.get(host, state.since_s)
        ack = state.acks.get(host)
        known = ack.boot if ack else 0
        again = state.kept.promises.get(host) == asked
        if again or (safety.does_not_hear(silent, policy) and known <= asked.boot):
            promises[host] = asked
    kept = replace(state.kept, promises=promises)
    return _keep(kept, call)


def _keep(kept: Kept, call: Call) -> Kept:
    """The registry: what comes is kept; what enough keep is acted by."""
    pending = max(kept.pending, call.registry or kept.pending, key=lambda one: one.stamp)
    sure = [
        one
        for one in (kept.pending, pending)
        if one.term == call.term and one.version <= call.committed
    ]
    acted = max([kept.registry, *sure], key=lambda one: one.version)
    return replace(kept, pending=pending, registry=acted)


def sends(state: AgentState, now_s: float, policy: HaPolicy) -> None:
    """When the beats were sent by which it may feed, the one that goes out now among them."""
    useful = {seq: at for seq, at in state.sent.items() if now_s - at < policy.feed_lease_s}
    state.sent = {**useful, state.seq: now_s}


def acknowledged(state: AgentState, view: AgentView) -> None:
    """When the last beat was sent that the master or enough peers have acknowledged."""
    masters = [_acked_s(state, arrived.call.acks) for arrived in view.calls.values()]
    members = state.kept.registry.members
    peers = sorted((at for at in _peers_acked_s(state, view) if at is not None), reverse=True)
    enough = [at for count, at in enumerate(peers, 1) if safety.enough_acknowledge(count, members)]
    found = (state.lease_from_s, *masters, *enough)
    state.lease_from_s = max((at for at in found if at is not None), default=None)


def _announce(state: AgentState, view: AgentView, policy: HaPolicy) -> None:
    """By what it feeds its watchdog, as others may count on it."""
    members = state.kept.registry.members
    known = agent_known.knowing(state, view, state.first_seq)
    feed_lease_s, watchdog_s = state.feed_lease_s, state.watchdog_s
    state.feed_lease_s = safety.announced_s(feed_lease_s, policy.feed_lease_s, known, members)
    state.watchdog_s = safety.announced_s(watchdog_s, view.watchdog_s, known, members)


def _acked_s(state: AgentState, acks: dict[str, Heard]) -> float | None:
    ack = acks.get(state.host)
    return state.sent.get(ack.seq) if ack is not None and ack.boot == state.boot else None


def _peers_acked_s(state: AgentState, view: AgentView) -> list[float | None]:
    return [
        _acked_s(state, {state.host: ack})
        for ack in agent_known.acks_of_peers(state, view).values()
    ]


# -- what it is about ------------------------------------------------------------------------------


def _turn(state: AgentState, view: AgentView, now_s: float) -> None:
    """Since when it is asked to stop, what it is about, and since which beat."""
    state.asked_s = None if not view.asked else state.asked_s or now_s
    state.seq += 1
    phase = _phase(state, view)
    if phase != state.phase:
        state.phase, state.phase_seq = phase, state.seq


def _phase(state: AgentState, view: AgentView) -> str:
    if state.phase == OVER:
        return OVER
    if view.asked == STOP:
        return RESTING
    if view.asked not in (SHUTDOWN, REBOOT):
        return WORKING
    return LEAVING if agent_known.alive(view) else OVER


def _freezes(view: AgentView, policy: HaPolicy) -> bool:
    return view.asked == STOP or (
        view.asked in (SHUTDOWN, REBOOT) and agent_known.way_down(view, policy) == FREEZE
    )


def _pledge(state: AgentState, view: AgentView, armed: bool) -> None:
    """Who may count on the watchdog: all who heard a beat that says that it is armed, until enough
    have acknowledged one that says that it is not. Also of one that nobody needed any more before
    they heard of it: it is armed, and is to be put at rest."""
    if armed:
        state.believed, state.unpledged = True, 0
    if armed or not (state.believed or view.works):
        return
    state.unpledged = state.unpledged or state.seq
    members = state.kept.registry.members
    known = agent_known.knowing(state, view, state.unpledged)
    if safety.may_disarm(known, members, False) and not view.works:
        state.believed, state.unpledged = False, 0


def _beat(state: AgentState, view: AgentView, armed: bool, now_s: float, policy: HaPolicy) -> Beat:
    kept = state.kept
    members = [host for host in kept.registry.members if host != state.host]
    peers = {*members, *state.heard_s}
    asks = any(
        one.call.ask_registry and one.call.term == kept.term and one.call.master == kept.leader
        for one in view.calls.values()
    )
    acks = {
        host: ack
        for host, ack in state.acks.items()
        if safety.may_acknowledge(kept.promises.get(host), ack.boot)
    }
    silent_s = {host: now_s - state.heard_s.get(host, state.since_s) for host in sorted(peers)}
    silent_s = {host: at for host, at in silent_s.items() if safety.does_not_hear(at, policy)}
    wished = kept.registry.wished
    wished = replace(wished, digest=desired.digest(wished.text) if wished.text else "")
    if all(one.call.ask_wished != state.host for one in view.calls.values()):
        wished = replace(wished, text="")
    told = {*silent_s, *kept.promises, *kept.pending.asked_about, *kept.registry.asked_about}
    return Beat(
        state.host,
        state.boot,
        state.seq,
        phase=state.phase,
        freeze=_freezes(view, policy),
        live=view.asked in (SHUTDOWN, REBOOT) and agent_known.way_down(view, policy) == MIGRATE,
        armed=armed,
        watchdog_s=view.watchdog_s,
        storage_silent_s=view.storage_silent_s,
        pools_silent=view.pools_silent,
        guests=_told(state, view),
        acks=acks,
        silent_s=silent_s,
        promises=kept.promises,
        pledges={host: one for host, one in kept.pledges.items() if host in told},
        term=kept.term,
        leader=kept.leader,
        claim=kept.claim,
        granted_s=now_s - state.granted_s,
        stored_term=kept.pending.term,
        stored=kept.pending.version,
        applied=kept.registry.version,
        leases=view.leases,
        wished=wished,
        terms=policy.terms(view.program),
        settings=view.settings,
        registry=kept.pending if asks else None,
    )
