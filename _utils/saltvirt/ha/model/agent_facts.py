"""Facts that an agent derives from its view, for its heartbeats and for its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.ha.model import quorum, safety
from saltvirt.ha.model.agent_view import REBOOT
from saltvirt.ha.model.messages import ALIVE, RESTING, SHUT_DOWN, WORKING

if TYPE_CHECKING:
    from saltvirt.ha.model.agent_view import AgentState, AgentView
    from saltvirt.ha.model.messages import HeartbeatAck
    from saltvirt.ha.model.policy import HaPolicy


def acks_of_peers(state: AgentState, view: AgentView) -> dict[str, HeartbeatAck]:
    """Return {peer: the last heartbeat of this host in this boot that the peer acknowledges}, over
    the network or through shared pools."""
    acks: dict[str, HeartbeatAck] = {}
    members = state.saved.registry.members
    for source in (view.beats, view.stored):
        for host, arrived in source.items():
            ack = arrived.beat.acks.get(state.host)
            if host in members and ack is not None and ack.boot == state.boot:
                acks[host] = max(ack, acks.get(host, ack), key=lambda candidate: candidate.seq)
    return acks


def count_acks(state: AgentState, view: AgentView, seq: int) -> int:
    """Return how many peers and masters have acknowledged that heartbeat of this host, or a later
    one."""
    acks = list(acks_of_peers(state, view).values())
    for arrived in view.messages.values():
        if quorum.master_votes(state.saved.registry.members, arrived.message.sole_master):
            acks += [ack for host, ack in arrived.message.acks.items() if host == state.host]
    return sum(ack.boot == state.boot and ack.seq >= seq for ack in acks)


def consents(state: AgentState, guest: str, epoch: int, now_s: float, policy: HaPolicy) -> bool:
    """Return whether a guest may migrate to this host. The source asks the target's agent before
    libvirt migrates."""
    record = state.saved.registry.guests.get(guest)
    if record is None or state.phase != WORKING:
        return False
    is_target = (record.target, record.target_boot) == (state.host, state.boot)
    lease = safety.lease_holds(state.lease_from_s, now_s, feed_lease_s(state, policy))
    return is_target and record.epoch + 1 == epoch and lease


def feed_lease_s(state: AgentState, policy: HaPolicy) -> float:
    """Return the time limit within which the host feeds its watchdog, from the moment when it sent
    the last acknowledged heartbeat."""
    own_s = policy.feed_lease_s
    return own_s if state.feed_lease_s is None else min(own_s, state.feed_lease_s)


def way_down(view: AgentView, policy: HaPolicy) -> str:
    return policy.on_shutdown(view.request == REBOOT)


def alive(view: AgentView) -> list[str]:
    return [name for name, status in view.guests.items() if status.state in ALIVE]


def wants_watchdog(state: AgentState, view: AgentView, phase: str) -> bool:
    """Return whether the watchdog is to be armed: guests run on this host, or are to run there. A
    host without guests is never reset."""
    registry = state.saved.registry
    if phase in (RESTING, SHUT_DOWN) or not registry.armed or len(registry.members) < 2:
        return False
    assigned = any(record.is_of(state.host) for record in registry.guests.values())
    return assigned or bool(alive(view))
