"""Steps of a host's agent: one step for each heartbeat, from the messages that the agent has
received and from the state of libvirt and of the watchdog device.

The agent is a service of its own: it depends neither on the minion nor on what Salt does to its
modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from saltvirt.ha.model import agent_facts, messages, safety
from saltvirt.ha.model import committed_config as desired
from saltvirt.ha.model.agent_actions import ActionPlanner
from saltvirt.ha.model.agent_view import (
    REBOOT,
    SHUTDOWN,
    START,
    STOP,
    AgentAction,
    AgentState,
    AgentView,
    SavedAgentState,
)
from saltvirt.ha.model.messages import (
    LEAVING,
    OFF,
    RESTING,
    SHUT_DOWN,
    WORKING,
    GuestStatus,
    Heartbeat,
    HeartbeatAck,
)
from saltvirt.ha.model.policy import FREEZE, MIGRATE

if TYPE_CHECKING:
    from saltvirt.ha.model.messages import LeaderMessage
    from saltvirt.ha.model.policy import HaPolicy


@dataclass(frozen=True)
class AgentStep:
    """The result of a step. The caller acts in this order: write state.saved to the disk, send
    beat, carry out actions."""

    state: AgentState
    beat: Heartbeat
    actions: tuple[AgentAction, ...]


def step(before: AgentState, view: AgentView, now_s: float, policy: HaPolicy) -> AgentStep:
    """Return one step: the agent follows the messages that it has received, then reports its state
    in a heartbeat and acts."""
    state = replace(before)
    _listen(state, view)
    _follow(state, view, now_s, policy)
    renew_lease(state, view)
    _announce(state, view, policy)
    _update_phase(state, view, now_s)
    armed = view.works and agent_facts.wants_watchdog(state, view, state.phase)
    _update_believed(state, view, armed)
    state.tried = _tried(state, view)
    beat = _make_beat(state, view, armed, now_s, policy)
    record_send(state, now_s, policy)
    feed_lease_s = agent_facts.feed_lease_s(state, policy)
    lease = safety.lease_holds(state.lease_from_s, now_s, feed_lease_s)
    actions = ActionPlanner(state, view, policy, lease, now_s).actions()
    state.tried |= {action.guest: action.epoch for action in actions if action.kind == START}
    return AgentStep(state, beat, tuple(actions))


def _tried(state: AgentState, view: AgentView) -> dict[str, int]:
    present = {name: status.epoch for name, status in view.guests.items() if status.state != OFF}
    return {**state.tried, **{n: max(e, state.tried.get(n, 0)) for n, e in present.items()}}


def _guest_statuses(state: AgentState, view: AgentView) -> dict[str, GuestStatus]:
    """Return the guests as libvirt reports them, and as stopped those that were on this host and
    are missing now."""
    missing = {
        name: GuestStatus(state.tried[name], messages.STOPPED)
        for name, record in state.saved.registry.guests.items()
        if record.host == state.host and name in state.tried and name not in view.guests
    }
    return {**view.guests, **missing}


# -- received heartbeats and messages --------------------------------------------------------------


def _listen(state: AgentState, view: AgentView) -> None:
    """Process the heartbeats of peers: update the acknowledgements that this host sends, and the
    states that the peers reported of themselves."""
    acks, states, heard_s = dict(state.acks), dict(state.saved.host_states), dict(state.heard_s)
    for source in (view.beats, view.stored):
        for host, arrived in source.items():
            beat = arrived.beat
            if not _may_store(beat, view):
                continue
            if safety.may_acknowledge(state.saved.fence_votes.get(host), beat.boot):
                heard = HeartbeatAck(beat.boot, beat.seq)
                acks[host] = max(acks.get(host, heard), heard, key=messages.order)
                states[host] = max(
                    states.get(host, beat.host_state), beat.host_state, key=messages.order
                )
    for host, arrived in view.beats.items():
        heard_s[host] = max(arrived.at_s, heard_s.get(host, arrived.at_s))
    state.acks, state.heard_s = acks, heard_s
    state.saved = replace(state.saved, host_states=states)


def _may_store(beat: Heartbeat, view: AgentView) -> bool:
    """Return whether a peer's state is on the disk, which it must be before the peer is
    acknowledged. If nothing new can be written, only a state that is in each version that the disk
    may contain counts, because the result of the pending write is unknown."""
    states = [state.host_states.get(beat.host) for state in view.disk or ()]
    return all(state is not None and state.lasting == beat.host_state.lasting for state in states)


def _follow(state: AgentState, view: AgentView, now_s: float, policy: HaPolicy) -> None:
    """Process the messages of masters: grant the lead, vote to give up hosts, store the registry.
    All of it must be written to the disk before the heartbeat goes out."""
    for arrived in view.messages.values() if view.disk is None else ():
        message, saved = arrived.message, state.saved
        granted_s = now_s - state.granted_s
        if not message.asks or not safety.may_grant(message, saved.term, saved.leader):
            continue
        # a shorter time from new settings applies to the next grant
        lead_lease_s = max(policy.lead_lease_s, state.lead_lease_s or 0)
        if not safety.lead_is_over(message, saved.leader, granted_s, lead_lease_s):
            continue
        if message.term == saved.term and message.seq <= saved.claim:
            continue  # the message was answered before
        saved = replace(saved, term=message.term, leader=message.master, claim=message.seq)
        state.saved, state.granted_s, state.lead_lease_s = saved, now_s, policy.lead_lease_s
        if message.leading:
            state.saved = _obey(state, message, now_s, policy)


def _obey(
    state: AgentState, message: LeaderMessage, now_s: float, policy: HaPolicy
) -> SavedAgentState:
    votes = {}
    for host, vote in message.ballots.items():
        silent = now_s - state.heard_s.get(host, state.since_s)
        ack = state.acks.get(host)
        acked_boot = ack.boot if ack else 0
        is_repeated = state.saved.fence_votes.get(host) == vote
        if is_repeated or (safety.does_not_hear(silent, policy) and acked_boot <= vote.boot):
            votes[host] = vote
    saved = replace(state.saved, fence_votes=votes)
    return _store_registry(saved, message)


def _store_registry(saved: SavedAgentState, message: LeaderMessage) -> SavedAgentState:
    """Store the registry of the message as pending, and act on a pending registry as soon as enough
    hosts store it."""
    pending = max(
        saved.pending, message.registry or saved.pending, key=lambda registry: registry.stamp
    )
    sure = [
        registry
        for registry in (saved.pending, pending)
        if registry.term == message.term and registry.version <= message.committed
    ]
    acted = max([saved.registry, *sure], key=lambda registry: registry.version)
    return replace(saved, pending=pending, registry=acted)


def record_send(state: AgentState, now_s: float, policy: HaPolicy) -> None:
    """Record the send times of the heartbeats whose acknowledgement still allows feeding the
    watchdog, including the heartbeat that goes out now."""
    useful = {
        seq: sent_s for seq, sent_s in state.sent.items() if now_s - sent_s < policy.feed_lease_s
    }
    state.sent = {**useful, state.seq: now_s}


def renew_lease(state: AgentState, view: AgentView) -> None:
    """Update lease_from_s: the send time of the last heartbeat that the master or enough peers have
    acknowledged."""
    masters = [_acked_s(state, arrived.message.acks) for arrived in view.messages.values()]
    members = state.saved.registry.members
    peers = sorted(
        (sent_s for sent_s in _peers_acked_s(state, view) if sent_s is not None), reverse=True
    )
    enough = [
        sent_s for count, sent_s in enumerate(peers, 1) if safety.enough_acknowledge(count, members)
    ]
    candidates = (state.lease_from_s, *masters, *enough)
    state.lease_from_s = max((sent_s for sent_s in candidates if sent_s is not None), default=None)


def _announce(state: AgentState, view: AgentView, policy: HaPolicy) -> None:
    """Update the times with which the agent feeds its watchdog (feed_lease_s, watchdog_s) to values
    on which other machines may rely."""
    members = state.saved.registry.members
    acks = agent_facts.count_acks(state, view, state.first_seq)
    feed_lease_s, watchdog_s = state.feed_lease_s, state.watchdog_s
    state.feed_lease_s = safety.announced_s(feed_lease_s, policy.feed_lease_s, acks, members)
    state.watchdog_s = safety.announced_s(watchdog_s, view.watchdog_s, acks, members)


def _acked_s(state: AgentState, acks: dict[str, HeartbeatAck]) -> float | None:
    ack = acks.get(state.host)
    return state.sent.get(ack.seq) if ack is not None and ack.boot == state.boot else None


def _peers_acked_s(state: AgentState, view: AgentView) -> list[float | None]:
    return [
        _acked_s(state, {state.host: ack})
        for ack in agent_facts.acks_of_peers(state, view).values()
    ]


# -- phase and heartbeat ---------------------------------------------------------------------------


def _update_phase(state: AgentState, view: AgentView, now_s: float) -> None:
    """Update the time since which the agent is asked to stop, its phase, and the first heartbeat of
    that phase."""
    state.stop_since_s = None if not view.request else state.stop_since_s or now_s
    state.seq += 1
    phase = _phase(state, view)
    if phase != state.phase:
        state.phase, state.phase_seq = phase, state.seq


def _phase(state: AgentState, view: AgentView) -> str:
    if state.phase == SHUT_DOWN:
        return SHUT_DOWN
    if view.request == STOP:
        return RESTING
    if view.request not in (SHUTDOWN, REBOOT):
        return WORKING
    return LEAVING if agent_facts.alive(view) else SHUT_DOWN


def _freezes(view: AgentView, policy: HaPolicy) -> bool:
    return view.request == STOP or (
        view.request in (SHUTDOWN, REBOOT) and agent_facts.way_down(view, policy) == FREEZE
    )


def _update_believed(state: AgentState, view: AgentView, armed: bool) -> None:
    """Update whether other machines may rely on the watchdog. They rely on it from the first
    heartbeat that says that the watchdog is armed until enough peers have acknowledged a heartbeat
    that says that it is not armed. This also holds for a watchdog that became unnecessary before
    any peer heard of it: the watchdog is armed, and is to be disarmed."""
    if armed:
        state.believed, state.unpledged = True, 0
    if armed or not (state.believed or view.works):
        return
    state.unpledged = state.unpledged or state.seq
    members = state.saved.registry.members
    acks = agent_facts.count_acks(state, view, state.unpledged)
    if safety.may_disarm(acks, members, False) and not view.works:
        state.believed, state.unpledged = False, 0


def _make_beat(
    state: AgentState, view: AgentView, armed: bool, now_s: float, policy: HaPolicy
) -> Heartbeat:
    saved = state.saved
    members = [host for host in saved.registry.members if host != state.host]
    peers = {*members, *state.heard_s}
    asks = any(
        entry.message.ask_registry
        and entry.message.term == saved.term
        and entry.message.master == saved.leader
        for entry in view.messages.values()
    )
    acks = {
        host: ack
        for host, ack in state.acks.items()
        if safety.may_acknowledge(saved.fence_votes.get(host), ack.boot)
    }
    silent_s = {host: now_s - state.heard_s.get(host, state.since_s) for host in sorted(peers)}
    silent_s = {
        host: age_s for host, age_s in silent_s.items() if safety.does_not_hear(age_s, policy)
    }
    config = saved.registry.config
    config = replace(config, digest=desired.digest(config.text) if config.text else "")
    if all(entry.message.ask_config != state.host for entry in view.messages.values()):
        config = replace(config, text="")
    hosts = {*silent_s, *saved.fence_votes, *saved.pending.suspects, *saved.registry.suspects}
    return Heartbeat(
        state.host,
        state.boot,
        state.seq,
        phase=state.phase,
        freeze=_freezes(view, policy),
        live=view.request in (SHUTDOWN, REBOOT) and agent_facts.way_down(view, policy) == MIGRATE,
        armed=armed,
        watchdog_s=view.watchdog_s,
        storage_silent_s=view.storage_silent_s,
        pools_silent=view.pools_silent,
        guests=_guest_statuses(state, view),
        acks=acks,
        silent_s=silent_s,
        fence_votes=saved.fence_votes,
        host_states={host: entry for host, entry in saved.host_states.items() if host in hosts},
        term=saved.term,
        leader=saved.leader,
        claim=saved.claim,
        granted_s=now_s - state.granted_s,
        stored_term=saved.pending.term,
        stored=saved.pending.version,
        applied=saved.registry.version,
        leases=view.leases,
        config=config,
        terms=policy.terms(view.program),
        settings=view.settings,
        registry=saved.pending if asks else None,
    )
