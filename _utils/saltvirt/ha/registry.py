"""What is decided and must not be forgotten: kept by a majority of the hosts, before it is acted
by. So it outlives each master, and one that takes over knows all that was done."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.wire import Fact, seldom

# states of a host
UNKNOWN, UP, SUSPECTED, FENCING, FENCED, RETURNING, MAINTENANCE, REST = (
    "unknown", "up", "suspected", "fencing", "fenced", "returning", "maintenance", "resting",
)  # fmt: skip
_ASKED_ABOUT = frozenset({SUSPECTED, FENCING, UNKNOWN})
# states of a guest
NEW, PLACED, RECOVERING, BLOCKED, ERROR, STOPPED, IGNORED = (
    "new", "placed", "recovering", "blocked", "error", "stopped", "ignored",
)  # fmt: skip


@dataclass(frozen=True)
class GuestPlace(Fact):
    """Where a copy of a guest may run. boot: which start of the host; 0: any so far."""

    host: str
    boot: int


@dataclass(frozen=True)
class GuestRecord(Fact):
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
    host: str = seldom("")
    boot: int = seldom(0)
    run: bool = seldom(False)
    places: tuple[GuestPlace, ...] = seldom(())
    target: str = seldom("")
    target_boot: int = seldom(0)
    changed: int = 0
    gentle: bool = seldom(False)
    restarts: int = seldom(0)
    relocates: int = seldom(0)
    failed: tuple[str, ...] = seldom(())
    better: str = seldom("")
    last: str = seldom("")
    home: str = seldom("")
    turned: int = seldom(0)
    left: str = seldom("")
    refused: tuple[GuestPlace, ...] = seldom(())
    wish: int = seldom(0)
    taker: str = seldom("")
    anew: int = seldom(0)
    agent_silent_s: int = seldom(0)

    def is_of(self, host: str) -> bool:
        """Whether a host has it, may run a copy of it, or is to get it."""
        return host in (self.host, self.target) or any(one.host == host for one in self.places)


@dataclass(frozen=True)
class HostRecord(Fact):
    """A host as the leader has it. boot: the last that was heard; gone: all before this one are
    proven to be over. ballot: the version of the registry in which the others were asked to give it
    up, or in which it returned. stuck: nothing is done to it though it is silent, or no proof is to
    be expected."""

    state: str = UNKNOWN
    why: str = ""
    boot: int = 0
    gone: int = 0
    ballot: int = seldom(0)
    stuck: bool = seldom(False)


@dataclass(frozen=True)
class Wished(Fact):
    """What persons want, for masters that lost it or have to agree on it: a text that only they
    read.
    term, version: of the registry in which it became so. Of two the later one holds. digest: of the
    text, where a beat tells it without the text."""

    term: int = 0
    version: int = 0
    text: str = ""
    digest: str = seldom("")

    @property
    def stamp(self) -> tuple[int, int]:
        """Of two the one with the larger stamp holds."""
        return self.term, self.version


@dataclass(frozen=True)
class Registry(Fact):
    """term: of the leader who wrote it; version: rises with each change. members: the hosts that
    count for a majority. armed: high availability is on. fences: hosts fenced in the window.
    wished: what persons want."""

    term: int = 0
    version: int = 0
    armed: bool = True
    members: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    guests: dict[str, GuestRecord] = field(default_factory=dict)
    wished: Wished = seldom(Wished())

    def host(self, name: str) -> HostRecord:
        """The record of a host, known or not."""
        return self.hosts.get(name, HostRecord())

    def is_asked_about(self, name: str) -> bool:
        """Whether the leader wants to know what that host has last said to anybody."""
        return self.host(name).state in _ASKED_ABOUT

    @property
    def asked_about(self) -> list[str]:
        """The hosts of which the leader wants to know what they have last said to anybody."""
        return [name for name, one in self.hosts.items() if one.state in _ASKED_ABOUT]

    @property
    def stamp(self) -> tuple[int, int]:
        """Of two registries the one with the larger stamp is to be kept."""
        return self.term, self.version
