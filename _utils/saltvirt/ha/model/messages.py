"""What hosts and masters tell each other, each as the whole of what it knows: a word that is lost
is made good by the next. Units are in the names; times are durations, for no two clocks agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from saltvirt.ha.model.policy import Terms
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.schema import Message, optional

# what a host says that it is about: its guests run; its agent stops and they stay as they are; it
# wants to be rid of them; none of them runs until it is started anew
WORKING, RESTING, LEAVING, SHUT_DOWN = "working", "resting", "leaving", "over"
PHASES = (WORKING, RESTING, LEAVING, SHUT_DOWN)

# what there is of a guest on a host; OFF: a definition
STARTING, RUNNING, STOPPED, CRASHED, FAILED, OFF, INCOMING = (
    "starting", "running", "stopped", "crashed", "failed", "off", "incoming",
)  # fmt: skip
# these may write to its disks, now or without being told
ALIVE = (STARTING, RUNNING, INCOMING)
# what ails one that is alive: its kernel panicked, its I/O failed, its watchdog fired, its agent
# was heard and is silent; its storage is full, or it is not known yet why its I/O failed
PANICKED, IO_FAILED, WATCHDOG, SILENT, FULL, UNCLEAR = (
    "panicked", "i/o failed", "watchdog", "silent", "full", "unclear",
)  # fmt: skip


# a number that a host tells of itself: what is counted on from it can be told, too
BoundedInt = Annotated[int, 2**62]


@dataclass(frozen=True)
class HeartbeatAck(Message):
    """An acknowledgement: the last beat of a host that was heard. boot: which start of it."""

    boot: int
    seq: int


@dataclass(frozen=True)
class FenceVote(Message):
    """Not to acknowledge a host any more, in that boot or an earlier one. term, ballot: for whom,
    and which of his questions."""

    boot: int
    term: int
    ballot: int


@dataclass(frozen=True)
class HostState(Message):
    """What a host has last said of itself: armed: its guests run only while its watchdog does.
    terms: by which it feeds that."""

    boot: int = 0
    seq: int = 0
    armed: bool = False
    watchdog_s: float = 0
    phase: str = WORKING
    freeze: bool = False
    terms: Terms = field(default_factory=Terms)

    @property
    def lasting(self) -> tuple[object, ...]:
        """What of it must not be forgotten: the number of a beat may be."""
        return self.boot, self.armed, self.watchdog_s, self.phase, self.freeze, self.terms


@dataclass(frozen=True)
class GuestStatus(Message):
    """A guest that a host has. epoch: of the start that it was told; migrated: the epoch of a
    migration away that failed. trouble: what ails it while it is alive; seen: that, or how it
    ended, in words. resets: so often its own watchdog has reset it of late."""

    epoch: BoundedInt
    state: str
    migrated: BoundedInt = optional(0)
    trouble: str = optional("")
    seen: str = optional("")
    resets: int = optional(0)


@dataclass(frozen=True)
class Heartbeat(Message):
    """What a host's agent tells the others, the masters and the shared pools.

    boot: rises with each start of the host; seq: with each beat. freeze: its guests wait for it.
    storage_silent_s: for so long a pool that such guests are on could not be written to; None: it
    knows of none. pools_silent: of several, each that could not be for long.
    acks: the last beats of peers that it acknowledges. silent_s: for how long it has not heard
    those by the network that it does not hear. pledges: what those have last said that it does not
    hear, or has promised to give up, or of which a leader may ask.
    term, leader, claim: to whom it has granted the lead, and which of his calls it answers;
    granted_s: how long ago. stored: (term, version) of the registry that it keeps; applied: the
    version that it acts by. leases: guests whose disks' lease it has got, with the version of
    the registry that told it to. definitions: ``digest`` of those that it keeps. wished: what
    persons want by the registry that it acts by; the text is for a master that asks. terms: what
    proofs of it depend on; settings: the digest of all its settings. pool_key: by what it seals its
    beats on pools; for peers, over TLS.
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
    promises: dict[str, FenceVote] = field(default_factory=dict)
    pledges: dict[str, HostState] = field(default_factory=dict)
    term: int = 0
    leader: str = ""
    claim: int = 0
    granted_s: float = 0
    stored_term: int = 0
    stored: int = 0
    applied: int = 0
    leases: dict[str, int] = field(default_factory=dict)
    definitions: str = ""
    wished: CommittedConfig = field(default_factory=CommittedConfig)
    terms: Terms = field(default_factory=Terms)
    settings: str = ""
    pool_key: str = optional("")
    pools_silent: dict[str, float] = optional({})
    registry: Registry | None = None

    @property
    def host_state(self) -> HostState:
        """What others keep of it."""
        return HostState(
            self.boot, self.seq, self.armed, self.watchdog_s, self.phase, self.freeze, self.terms
        )

    @property
    def leaves(self) -> bool:
        """It wants to be rid of its guests."""
        return self.phase in (LEAVING, SHUT_DOWN) and not self.freeze

    def to_master(self) -> Heartbeat:
        """What masters need of it: whom it acknowledges is a matter of hosts."""
        return replace(self, acks={})

    def to_peers(self) -> Heartbeat:
        """What all peers need of it, and those who read it on a pool."""
        return replace(
            self, guests={}, silent_s={}, promises={}, pledges={}, leases={}, definitions="",
            wished=CommittedConfig(), registry=None,
        )  # fmt: skip


def order(message: HeartbeatAck | HostState | Heartbeat) -> tuple[int, int]:
    """Of two words of a host the later has the larger one."""
    return message.boot, message.seq


def question(attempt: str) -> str:
    """The term and ballot for which a fence was tried: what comes before the attempt's number."""
    return attempt.rpartition(".")[0]


def digest(digests: Mapping[str, str]) -> str:
    """Of what each has by its name. Equal ones are of equal content."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


@dataclass(frozen=True)
class LeaderMessage(Message):
    """What a master tells a host. seq: rises with each call, also over its restarts within a term.

    asks: it wants the lead, or to keep it. leading: it has it and may be obeyed. alone: there is no
    other master. ballots: the hosts that it asks not to acknowledge any more. registry: to be kept;
    committed: up to this version enough hosts keep it, so it may be acted by. ask_registry: the
    beat shall have it. ask_wished: the host whose beat shall have what persons want.
    """

    master: str
    term: int
    seq: int
    asks: bool = True
    leading: bool = False
    alone: bool = True
    acks: dict[str, HeartbeatAck] = field(default_factory=dict)
    ballots: dict[str, FenceVote] = field(default_factory=dict)
    registry: Registry | None = None
    committed: int = 0
    ask_registry: bool = False
    ask_wished: str = ""


@dataclass(frozen=True)
class ReceivedHeartbeat:
    """A Beat, and when it came by the clock of the one who heard it."""

    beat: Heartbeat
    at_s: float


@dataclass(frozen=True)
class ReceivedMessage:
    """The same of a Call."""

    message: LeaderMessage
    at_s: float
