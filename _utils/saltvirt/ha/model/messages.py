"""Messages between hosts and masters. Each message contains all that its sender knows, so the next
message makes up for a lost one. Units are in the names. Times are durations, because no two clocks
agree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from saltvirt.ha.model.policy import Terms
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.schema import Message, optional, required

# phases of a host: its guests run; its agent stops and the guests stay unchanged; the host wants
# its guests to leave; none of its guests runs until the host starts again
WORKING, RESTING, LEAVING, SHUT_DOWN = "working", "resting", "leaving", "over"

# states of a guest on a host; OFF: only a definition
STARTING, RUNNING, STOPPED, CRASHED, FAILED, OFF, INCOMING = (
    "starting", "running", "stopped", "crashed", "failed", "off", "incoming",
)  # fmt: skip
# guests in these states may write to their disks, now or without a further command
ALIVE = (STARTING, RUNNING, INCOMING)
# problems of a guest that is alive: its kernel panicked, its I/O failed, its watchdog fired, its
# agent was heard and is silent; its storage is full, or the cause of the I/O failure is unknown
PANICKED, IO_FAILED, WATCHDOG, SILENT, FULL, UNCLEAR = (
    "panicked", "i/o failed", "watchdog", "silent", "full", "unclear",
)  # fmt: skip


# a number that a host reports of itself: numbers that are counted up from it can be sent, too
BoundedInt = Annotated[int, 2**62]


@dataclass(frozen=True)
class HeartbeatAck(Message):
    """An acknowledgement: the last heartbeat that was heard from a host. boot: the boot of the host
    to which it belongs."""

    boot: int
    seq: int


@dataclass(frozen=True)
class FenceVote(Message):
    """A vote to give up a host: not to acknowledge it any more, in that boot or an earlier one.
    term, ballot: the term of the master that asked, and the number of its question."""

    boot: int
    term: int
    ballot: int


@dataclass(frozen=True)
class HostState(Message):
    """The last state that a host has reported of itself. armed: the host's guests run only while
    its watchdog runs. terms: the terms with which the host feeds the watchdog."""

    boot: int = 0
    seq: int = 0
    armed: bool = False
    watchdog_s: float = 0
    phase: str = WORKING
    freeze: bool = False
    terms: Terms = field(default_factory=Terms)

    @property
    def lasting(self) -> tuple[object, ...]:
        """Return the part of the state that must not be forgotten; the number of a heartbeat may
        be."""
        return self.boot, self.armed, self.watchdog_s, self.phase, self.freeze, self.terms


@dataclass(frozen=True)
class GuestStatus(Message):
    """A guest as its host reports it. epoch: the epoch of the start that the host was asked for;
    migrated: the epoch of a migration away from the host that failed. trouble: the problem of a
    guest that is alive; detail: a text about the problem, or about how the guest ended. resets: how
    often the guest's own watchdog has recently reset it."""

    epoch: BoundedInt
    state: str
    migrated: BoundedInt = optional(0)
    trouble: str = optional("")
    detail: str = optional("")
    resets: int = optional(0)


@dataclass(frozen=True)
class Heartbeat(Message):
    """The message of a host's agent to its peers, to the masters and to the shared pools.

    boot: rises with each boot of the host; seq: rises with each heartbeat. freeze: the host's
    guests wait for it. storage_silent_s: for how long a pool with disks of high-availability guests
    could not be written to; None: the host knows no such pool. pools_silent: if the host knows
    several pools, each one that could not be written to for long, and for how long. acks: the last
    heartbeats of peers that the host acknowledges. silent_s: for how long the host has not heard
    each peer that it does not hear over the network. fence_votes: the votes to give up hosts.
    host_states: the last state that the host has from each peer that it does not hear, that it has
    voted to give up, or about which a leader may ask.

    term, leader, claim: the term and the master of the granted lead, and the message of this master
    that the host answers; granted_s: how long ago the host granted the lead. stored_term, stored:
    the term and the version of the registry that the host stores; applied: the version of the
    registry on which it acts. leases: the guests whose disk lease the host holds, with the version
    of the registry that asked for it. definitions: ``digest`` of the definitions that the host
    stores. config: what operators request according to the registry on which the host acts; the
    text is only sent to a master that asks for it. terms: what proofs about the host depend on;
    settings: the digest of all its settings. pool_key: the key with which the host seals its
    heartbeats on pools; sent to peers over TLS.
    """

    host: str
    boot: BoundedInt
    seq: BoundedInt
    phase: str = WORKING
    freeze: bool = False
    live: bool = False
    armed: bool = False
    watchdog_s: float = 0
    storage_silent_s: float | None = None
    guests: dict[str, GuestStatus] = field(default_factory=dict)
    acks: dict[str, HeartbeatAck] = field(default_factory=dict)
    silent_s: dict[str, float] = field(default_factory=dict)
    fence_votes: dict[str, FenceVote] = required({})
    host_states: dict[str, HostState] = required({})
    term: int = 0
    leader: str = ""
    claim: int = 0
    granted_s: float = 0
    stored_term: int = 0
    stored: int = 0
    applied: int = 0
    leases: dict[str, int] = field(default_factory=dict)
    definitions: str = ""
    config: CommittedConfig = required(CommittedConfig())
    terms: Terms = field(default_factory=Terms)
    settings: str = ""
    pool_key: str = optional("")
    pools_silent: dict[str, float] = optional({})
    registry: Registry | None = None

    @property
    def host_state(self) -> HostState:
        """Return the state that other machines store of the host."""
        return HostState(
            self.boot, self.seq, self.armed, self.watchdog_s, self.phase, self.freeze, self.terms
        )

    @property
    def leaves(self) -> bool:
        """Return whether the host wants its guests to leave."""
        return self.phase in (LEAVING, SHUT_DOWN) and not self.freeze

    def to_master(self) -> Heartbeat:
        """Return the heartbeat as masters need it: acknowledgements only matter to hosts."""
        return replace(self, acks={})

    def to_peers(self) -> Heartbeat:
        """Return the heartbeat as all peers need it, including those that read it from a pool."""
        return replace(
            self, guests={}, silent_s={}, fence_votes={}, host_states={}, leases={}, definitions="",
            config=CommittedConfig(), registry=None,
        )  # fmt: skip


def order(message: HeartbeatAck | HostState | Heartbeat) -> tuple[int, int]:
    """Return a sort key: of two messages of a host, the later one has the greater key."""
    return message.boot, message.seq


def question(attempt: str) -> str:
    """Return the term and the ballot for which a fence was attempted: the text before the number of
    the attempt."""
    return attempt.rpartition(".")[0]


def digest(digests: Mapping[str, str]) -> str:
    """Return the digest of a mapping from names to digests. Equal digests mean equal content."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


@dataclass(frozen=True)
class LeaderMessage(Message):
    """The message of a master to a host. seq: rises with each message, also over restarts of the
    master within a term.

    asks: the master wants to get or to keep the lead. leading: the master has the lead and may be
    obeyed. sole_master: no other master exists. ballots: the hosts that the master asks not to
    acknowledge any more. registry: the registry to store; committed: the version of the registry
    that enough hosts store, so that hosts may act on it. ask_registry: heartbeats are to contain
    the registry. ask_config: the host whose heartbeat is to contain what operators request.
    """

    master: str
    term: int
    seq: int
    asks: bool = True
    leading: bool = False
    sole_master: bool = required(True)
    acks: dict[str, HeartbeatAck] = field(default_factory=dict)
    ballots: dict[str, FenceVote] = field(default_factory=dict)
    registry: Registry | None = None
    committed: int = 0
    ask_registry: bool = False
    ask_config: str = ""


@dataclass(frozen=True)
class ReceivedHeartbeat:
    """A Heartbeat, and when it came according to the receiver's clock."""

    beat: Heartbeat
    at_s: float


@dataclass(frozen=True)
class ReceivedMessage:
    """A LeaderMessage, and when it came according to the receiver's clock."""

    message: LeaderMessage
    at_s: float
