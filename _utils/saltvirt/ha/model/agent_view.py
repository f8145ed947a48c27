"""The view of an agent, its memory, and its possible actions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from saltvirt.ha.model.messages import (
    WORKING,
    FenceVote,
    GuestStatus,
    HeartbeatAck,
    HostState,
    ReceivedHeartbeat,
    ReceivedMessage,
)
from saltvirt.ha.model.registry import Registry

# requests of the host to its agent
STOP, SHUTDOWN, REBOOT = "stop", "shutdown", "reboot"
# actions of the agent
FEED, ARM, DISARM = "feed", "arm", "disarm"
START, ADOPT, KILL, DROP, SEND_AWAY, LEASE = (
    "start", "adopt", "kill", "drop", "migrate", "lease",
)  # fmt: skip
STOP_GUEST, EXIT, POWER_OFF, RENEW = "stop", "exit", "power off", "renew"
ACTIONS = frozenset({
    FEED, ARM, DISARM, START, ADOPT, KILL, DROP, SEND_AWAY, LEASE, STOP_GUEST, EXIT, POWER_OFF,
    RENEW,
})  # fmt: skip


@dataclass(frozen=True)
class AgentView:
    """What the agent observes.

    beats: the last heartbeat that came from each peer over the network; stored: the last heartbeat
    of each peer that was read from shared pools. messages: the last message of each master. guests:
    the guests in libvirt that high availability has started or may start. watchdog: a watchdog
    device exists; works: the device is armed, and feeding it has not failed. storage_silent_s,
    pools_silent: see Heartbeat. request: stop, shutdown, reboot or "". leases: the guests whose
    disk lease this host holds. watchdog_s: the time without feeding after which the watchdog is to
    cut the power. program, settings: digests of the agent's program and settings. definitions: the
    guests whose definition, as sent by masters, the agent stores. disk: None, or, if nothing new
    can be written now, each state that the disk may contain.
    """

    beats: dict[str, ReceivedHeartbeat] = field(default_factory=dict)
    stored: dict[str, ReceivedHeartbeat] = field(default_factory=dict)
    messages: dict[str, ReceivedMessage] = field(default_factory=dict)
    guests: dict[str, GuestStatus] = field(default_factory=dict)
    watchdog: bool = False
    works: bool = False
    watchdog_s: float = 10
    storage_silent_s: float | None = None
    pools_silent: dict[str, float] = field(default_factory=dict)
    request: str = ""
    leases: dict[str, int] = field(default_factory=dict)
    program: str = ""
    settings: str = ""
    definitions: Collection[str] = frozenset()
    disk: tuple[SavedAgentState, ...] | None = None


@dataclass(frozen=True)
class SavedAgentState:
    """The part of the state that must be on the disk before a heartbeat that announces it goes out:
    it survives a loss of the host's power.

    term, leader, claim: the term and the master of the granted lead, and the last message of that
    master. pending: the registry that the agent stores for the leader; registry: the last registry
    on which the agent may act.
    """

    fence_votes: dict[str, FenceVote] = field(default_factory=dict)
    host_states: dict[str, HostState] = field(default_factory=dict)
    term: int = 0
    leader: str = ""
    claim: int = 0
    pending: Registry = field(default_factory=Registry)
    registry: Registry = field(default_factory=Registry)


@dataclass
class AgentState:
    """The agent's memory from step to step; a step changes a copy of it. saved survives a loss of
    power. seq, believed, unpledged, tried, phase, feed_lease_s, watchdog_s and lead_lease_s survive
    restarts of the agent within one boot. The rest starts empty.

    since_s: when the agent started. granted_s: when the agent last granted the lead. sent: seq to
    its send time. heard_s: when the last heartbeat of each peer came over the network. believed:
    other machines may believe that the watchdog is armed. unpledged: the first heartbeat that said
    that the watchdog is not armed. phase, phase_seq: the phase, and the first heartbeat that
    announced it. tried: the last epoch of each guest that was on this host in this boot.
    stop_since_s: since when the agent is asked to stop. first_seq: the first heartbeat since the
    agent started. feed_lease_s, watchdog_s: the times with which the agent feeds its watchdog; see
    ``safety.announced_s``. lead_lease_s: the time for which the agent last granted the lead.
    """

    host: str
    boot: int
    saved: SavedAgentState = field(default_factory=SavedAgentState)
    seq: int = 0
    believed: bool = False
    unpledged: int = 0
    since_s: float = 0
    granted_s: float = 0
    sent: dict[int, float] = field(default_factory=dict)
    acks: dict[str, HeartbeatAck] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    lease_from_s: float | None = None
    stop_since_s: float | None = None
    tried: dict[str, int] = field(default_factory=dict)
    phase: str = WORKING
    phase_seq: int = 0
    first_seq: int = 0
    feed_lease_s: float | None = None
    watchdog_s: float | None = None
    lead_lease_s: float | None = None

    def after_restart(self, now_s: float) -> AgentState:
        """Return the state after a restart of the agent."""
        initial = initial_state(self.host, self.boot, self.saved, now_s)
        seq = max(self.seq, initial.seq)
        return replace(
            initial,
            seq=seq,
            first_seq=seq + 1,
            feed_lease_s=self.feed_lease_s,
            watchdog_s=self.watchdog_s,
            lead_lease_s=self.lead_lease_s,
            believed=self.believed,
            unpledged=self.unpledged,
            phase=self.phase,
            phase_seq=self.phase_seq,
            tried=self.tried,
        )

    def after_reboot(self) -> AgentState:
        """Return the state as if the host had booted: none of its guests runs, and nothing from
        before counts. The boot number is greater than each that other machines know."""
        record = self.saved.registry.host(self.host)
        behind = record.boot + 1 if record.boot > self.boot else 0
        return replace(
            self,
            boot=max(self.boot + 1, record.dead_before, behind),
            phase=WORKING,
            believed=False,
            unpledged=0,
            sent={},
            lease_from_s=None,
            tried={},
            first_seq=self.seq + 1,
        )


def initial_state(host: str, boot: int, saved: SavedAgentState, now_s: float) -> AgentState:
    """Return the state of an agent after its host's start. Heartbeats are numbered from the clock,
    which rises within a boot: no number is used twice, even if the state was lost."""
    return AgentState(host, boot, saved, seq=int(now_s * 1000), since_s=now_s, granted_s=now_s)


def must_save(old: SavedAgentState, new: SavedAgentState) -> bool:
    """Return whether the new state must be on the disk before the heartbeat goes out. The numbers
    of heartbeats and messages need not be there: they rise each time."""
    return _lasting(old) != _lasting(new)


def _lasting(saved: SavedAgentState) -> tuple[object, ...]:
    states = {name: state.lasting for name, state in saved.host_states.items()}
    stamps = saved.pending.stamp, saved.registry.stamp
    return saved.fence_votes, states, saved.term, saved.leader, stamps


@dataclass(frozen=True)
class AgentAction:
    """An action, with its reason for the journal. guest, epoch, host: the guest, its epoch, and the
    host that it migrates to."""

    kind: str
    guest: str = ""
    epoch: int = 0
    host: str = ""
    reason: str = ""
