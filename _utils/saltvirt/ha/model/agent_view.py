"""What an agent sees, what it remembers, and what it can do."""

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

# what its own machine asks of the agent
STOP, SHUTDOWN, REBOOT = "stop", "shutdown", "reboot"
# what it does
FEED, ARM, DISARM = "feed", "arm", "disarm"
START, ADOPT, KILL, DROP, SEND_AWAY, LEASE = (
    "start", "adopt", "kill", "drop", "migrate", "lease",
)  # fmt: skip
STOP_GUEST, EXIT, POWER_OFF, RENEW = "stop", "exit", "power off", "renew"


@dataclass(frozen=True)
class AgentView:
    """What the agent sees. beats: the last that came from each peer by the network; stored:
    those that it last read on shared pools. calls: the last of each master. guests: what
    libvirt has of guests that high availability has started or may start. watchdog: there is a
    device; works: it is open, and feeding it did no harm. storage_silent_s, pools_silent: as
    Beat has them. asked: stop, shutdown, reboot or nothing. leases: guests whose disks' lease
    this host has got. watchdog_s: unfed so long, it is to cut the power. program, settings:
    digests of what this agent runs by. definitions: guests of which it keeps the definition that
    masters told. disk: None, or nothing new can be written down now, and
    this is what the disk may have, each of them."""

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
    """What must be on the disk before a beat goes out that says so: it outlives the host's power.

    term, leader, claim: to whom the lead is granted, and his last call. pending: the registry
    that is kept for the leader; registry: the last that may be acted by.
    """

    promises: dict[str, FenceVote] = field(default_factory=dict)
    pledges: dict[str, HostState] = field(default_factory=dict)
    term: int = 0
    leader: str = ""
    claim: int = 0
    pending: Registry = field(default_factory=Registry)
    registry: Registry = field(default_factory=Registry)


@dataclass
class AgentState:
    """What the agent knows from step to step; a step changes a copy of it. kept: over a loss of
    power; seq, believed, unpledged, tried, phase, feed_lease_s, watchdog_s, lead_lease_s: over its
    own restarts in one boot; the rest begins anew.

    since_s: when it began. granted_s: when it last granted the lead. sent: seq to when. heard: last
    beat of a peer by the network. believed: others may believe that its watchdog is armed.
    unpledged: the first beat that said that it is not. phase, phase_seq: what it is about, and the
    first beat that said so. tried: the last epoch of each guest that was here in this boot.
    asked_s: since when it is to stop. first_seq: its first beat, since the agent began.
    feed_lease_s, watchdog_s: by what it feeds its watchdog; see ``safety.announced_s``.
    lead_lease_s: for so long it last granted the lead.
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
        """As it is after the agent's own restart."""
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
        """As if its host had booted: none of its guests runs, nothing from before counts. Its
        number is above each that others know."""
        record = self.saved.registry.host(self.host)
        behind = record.boot + 1 if record.boot > self.boot else 0
        return replace(
            self,
            boot=max(self.boot + 1, record.gone, behind),
            phase=WORKING,
            believed=False,
            unpledged=0,
            sent={},
            lease_from_s=None,
            tried={},
            first_seq=self.seq + 1,
        )


def initial_state(host: str, boot: int, saved: SavedAgentState, now_s: float) -> AgentState:
    """The state of an agent after its host's start. Its beats are numbered by the clock, which
    rises within a boot: no number is used twice, whatever was lost."""
    return AgentState(host, boot, saved, seq=int(now_s * 1000), since_s=now_s, granted_s=now_s)


def must_save(old: SavedAgentState, new: SavedAgentState) -> bool:
    """Whether it must be on the disk before the beat goes out. The numbers of beats and calls need
    not be: they rise with each."""
    return _lasting(old) != _lasting(new)


def _lasting(saved: SavedAgentState) -> tuple[object, ...]:
    states = {name: state.lasting for name, state in saved.pledges.items()}
    stamps = saved.pending.stamp, saved.registry.stamp
    return saved.promises, states, saved.term, saved.leader, stamps


@dataclass(frozen=True)
class AgentAction:
    """What is to be done, and why, for the journal. guest, epoch, host: which, its epoch, and where
    it migrates to."""

    kind: str
    guest: str = ""
    epoch: int = 0
    host: str = ""
    reason: str = ""
