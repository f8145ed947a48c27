"""The registry: decisions that must not be forgotten. A majority of the hosts stores each decision
before any host acts on it. So the registry survives each master, and a master that takes over knows
all that was done."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message, optional, required

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
    """A place where a copy of a guest may run. boot: the boot of the host; 0: any boot until
    now."""

    host: str
    boot: int


@dataclass(frozen=True)
class HaGuestRecord(Message):
    """A guest that high availability keeps running.

    epoch: rises with each host and each start that the guest gets. host, boot: the host that is to
    have the guest, and its boot; "": no host yet. run: the guest is to run. locations: all places
    where a copy may run; target: the host to which the guest migrates, with epoch + 1. changed: the
    version of the registry in which the record got this content. gentle: the guest is shut down on
    the host that it leaves, not killed.

    restarts, relocates: attempts since the guest last ran without problems; failed: the hosts on
    which it failed; better: the host to which it is to go; last: the last host that had it. home:
    the host to which the guest goes back after a planned absence of the host. turned: how many
    migrations have failed in a row. origin: the host on which the guest was stopped without a
    problem, to be started on a better one; refused: hosts on which it then did not start.
    last_request: the number of the last fulfilled request of an operator. taker: the host that is
    to get the lease of the guest's disks. anew: the epoch with which the guest is started where an
    earlier epoch runs, which is killed first. agent_silent_s: see GuestConfig.
    """

    state: str = NEW
    reason: str = ""
    epoch: int = 0
    host: str = optional("")
    boot: int = optional(0)
    run: bool = optional(False)
    locations: tuple[GuestLocation, ...] = required(())
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
    origin: str = optional("")
    refused: tuple[GuestLocation, ...] = optional(())
    last_request: int = optional(0)
    taker: str = optional("")
    anew: int = optional(0)
    agent_silent_s: int = optional(0)

    def is_of(self, host: str) -> bool:
        """Return whether the host has the guest, may run a copy of it, or is to get it."""
        return host in (self.host, self.target) or any(
            location.host == host for location in self.locations
        )


@dataclass(frozen=True)
class HostRecord(Message):
    """A host as the leader knows it. boot: the last boot that was heard; dead_before: all boots
    before this one are proven to be over. ballot: the version of the registry in which the other
    hosts were asked to give up this host, or in which it returned. stuck: nothing is done to the
    host although it is silent, or no proof is to be expected."""

    state: str = UNKNOWN
    reason: str = ""
    boot: int = 0
    dead_before: int = required(0)
    ballot: int = optional(0)
    stuck: bool = optional(False)


@dataclass(frozen=True)
class CommittedConfig(Message):
    """What operators request, for masters that lost it or have to agree on it: a text that only
    masters read.

    term, version: those of the registry in which the text was agreed on. Of two texts, the later
    one is valid. digest: the digest of the text, if a heartbeat contains no text.
    """

    term: int = 0
    version: int = 0
    text: str = ""
    digest: str = optional("")

    @property
    def stamp(self) -> tuple[int, int]:
        """Return a sort key: of two configurations, the one with the greater stamp is valid."""
        return self.term, self.version


@dataclass(frozen=True)
class Registry(Message):
    """The registry. term: the term of the leader that wrote it; version: rises with each change.
    members: the hosts that count for a majority. armed: high availability is on. fences: the hosts
    that were fenced in the window. config: what operators request."""

    term: int = 0
    version: int = 0
    armed: bool = True
    members: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    hosts: dict[str, HostRecord] = field(default_factory=dict)
    guests: dict[str, HaGuestRecord] = field(default_factory=dict)
    config: CommittedConfig = required(CommittedConfig())

    def host(self, name: str) -> HostRecord:
        """Return the record of a host; an empty one if the host is unknown."""
        return self.hosts.get(name, HostRecord())

    def is_suspect(self, name: str) -> bool:
        """Return whether the leader needs the last state that the host has reported to any
        machine."""
        return self.host(name).state in _SUSPECT_STATES

    @property
    def suspects(self) -> list[str]:
        """Return the hosts of which the leader needs the last state that they have reported to any
        machine."""
        return [name for name, record in self.hosts.items() if record.state in _SUSPECT_STATES]

    @property
    def stamp(self) -> tuple[int, int]:
        """Return a sort key: of two registries, the one with the greater stamp is to be stored."""
        return self.term, self.version
