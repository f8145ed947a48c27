"""What is decided and must not be forgotten: kept by a majority of the hosts, before it is acted
by. So it outlives each master, and one that takes over knows all that was done."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message, optional

# states of a host
UNKNOWN, UP, SUSPECTED, FENCING, FENCED, RETURNING, MAINTENANCE, REST = (
    "unknown", "up", "suspected", "fencing", "fenced", "returning", "maintenance", "resting",
)  # fmt: skip
_SUSPECT_STATES = frozenset({SUSPECTED, FENCING, UNKNOWN})
# states of a guest
NEW, PLACED, RECOVERING, BLOCKED, ERROR, STOPPED, IGNORED = (
    "new", "placed", "recovering", "blocked", "error", "stopped", "ignored",
)  # fmt: skip


@dataclass(frozen=True)
class GuestLocation(Message):
    """Where a copy of a guest may run. boot: which start of the host; 0: any so far."""

    host: str
    boot: int


@dataclass(frozen=True)
class HaGuestRecord(Message):
    """A guest that high availability keeps running.

    epoch: rises with each place and each start that it gets. host, boot: who is to have it; empty:
    nobody yet. run: shall it. places: wherever a copy may run; target: the host that it migrates
    to, with epoch + 1. changed: the version of the registry in which that became so.
    gentle: it is shut down where it leaves, not killed.
    restarts, relocates: tries since it last ran well; failed: where; better: the host that it is to
    go to, last: where it was last. home: where it goes when that is back from what was planned.
    turned: its migrations that failed one after the other. left: the host that it was stopped on,
    well, to be started on a better one; refused: hosts on which it did not start then.
    wish: the last of a person's wishes that was followed. taker: the host that is to get the lease
    of its disks. anew: the epoch with which it is started where an earlier one runs, which is
    killed first. agent_silent_s: as GuestWanted has it.
    """

    state: str = NEW
    why: str = ""
    epoch: int = 0
    host: str = optional("")
    boot: int = optional(0)
    run: bool = optional(False)
    places: tuple[GuestLocation, ...] = optional(())
    target: str = optional("")
    target_boot: int = optional(0)
    changed: int = 0
    gentle: bool = optional(False)
    restarts: int = optional(0)
    relocates: int = optional(0)
    failed: tuple[str, ...] = optional(())
    better: str = optional("")
    last: str = optional("")
    home: str = optional("")
    turned: int = optional(0)
    left: str = optional("")
    refused: tuple[GuestLocation, ...] = optional(())
    wish: int = optional(0)
    taker: str = optional("")
    anew: int = optional(0)
    agent_silent_s: int = optional(0)

    def is_of(self, host: str) -> bool:
        """Whether a host has it, may run a copy of it, or is to get it."""
        return host in (self.host, self.target) or any(
            location.host == host for location in self.places
        )


@dataclass(frozen=True)
class HostRecord(Message):
    """A host as the leader has it. boot: the last that was heard; gone: all before this one are
    proven to be over. ballot: the version of the registry in which the others were asked to give it
    up, or in which it returned. stuck: nothing is done to it though it is silent, or no proof is to
    be expected."""

    state: str = UNKNOWN
    why: str = ""
    boot: int = 0
    gone: int = 0
    ballot: int = optional(0)
    stuck: bool = optional(False)


@dataclass(frozen=True)
class CommittedConfig(Message):
    """What persons want, for masters that lost it or have to agree on it: a text that only they
    read.
    term, version: of the registry in which it became so. Of two the later one holds. digest: of the
    text, where a beat tells it without the text."""

    term: int = 0
    version: int = 0
    text: str = ""
    digest: str = optional("")

    @property
    def stamp(self) -> tuple[int, int]:
        """Of two the one with the larger stamp holds."""
        return self.term, self.version


@dataclass(frozen=True)
class Registry(Message):
    """term: of the leader who wrote it; version: rises with each change. members: the hosts that
    count for a majority. armed: high availability is on. fences: hosts fenced in the window.
    wished: what persons want."""

    term: int = 0
    version: int = 0
    armed: bool = True
    members: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    guests: dict[str, HaGuestRecord] = field(default_factory=dict)
    wished: CommittedConfig = optional(CommittedConfig())

    def host(self, name: str) -> HostRecord:
        """The record of a host, known or not."""
        return self.hosts.get(name, HostRecord())

    def is_suspect(self, name: str) -> bool:
        """Whether the leader wants to know what that host has last said to anybody."""
        return self.host(name).state in _SUSPECT_STATES

    @property
    def suspects(self) -> list[str]:
        """The hosts of which the leader wants to know what they have last said to anybody."""
        return [name for name, record in self.hosts.items() if record.state in _SUSPECT_STATES]

    @property
    def stamp(self) -> tuple[int, int]:
        """Of two registries the one with the larger stamp is to be kept."""
        return self.term, self.version
