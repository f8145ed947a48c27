"""The view of a master, and its memory from one decision to the next."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from saltvirt.ha.model.messages import HeartbeatAck, HostState, LeaderMessage, ReceivedHeartbeat
from saltvirt.ha.model.policy import HaPolicy, Terms
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.placement.facts import Guest
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.schema import Message, optional, required, transient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.ha.model.messages import GuestStatus, Heartbeat
    from saltvirt.ha.model.registry import HaGuestRecord
    from saltvirt.placement.facts import Host

# the state of a guest that an operator requests
STARTED, STOPPED, IGNORED = "started", "stopped", "ignored"
# how a guest goes back to a better host; LIVE is stored as True
LIVE, RESTART = "live", "restart"
# how an operator moves a guest to another host
MIGRATE, RELOCATE = "migrate", "relocate"
# kinds and strictness of rules
AFFINITY, ANTI_AFFINITY, HOST_AFFINITY = "affinity", "anti_affinity", "host_affinity"
STRICT, PREFERRED = "strict", "preferred"
# results of a fence agent
OFF, ON, TIMED_OUT = "off", "on", "timed out"


@dataclass(frozen=True)
class GuestConfig(Message):
    """A guest that an operator gave to high availability.

    host: where the guest was at that time. desired_state: started, stopped or ignored. size: the
    guest's size as placement counts it. failback: to a better host: True for live migration,
    ``restart`` for a stop and a start, or False. leased: the guest's disks have a lease that only
    one host can hold. agent_silent_s: the guest has failed when its guest agent, once heard, is
    silent for this time; 0: never.
    """

    NAMED_BY: ClassVar[str] = "name"

    name: str
    host: str = ""
    desired_state: str = required(STARTED)
    priority: int = 0
    restarts: int = 1
    relocates: int = 1
    failback: bool | str = True
    leased: bool = False
    agent_silent_s: int = optional(0)
    size: Guest = transient(Guest("", vcpus=1, memory_kib=1024**2))


@dataclass(frozen=True)
class GuestRule(Message):
    """A rule: kind AFFINITY or ANTI_AFFINITY of guests to each other, or "" for their affinity to
    hosts, with ranks. strict: a guest stays down if the rule cannot be met."""

    guests: tuple[str, ...]
    kind: str = ""
    hosts: dict[str, int] = field(default_factory=dict)
    strict: bool = True


@dataclass(frozen=True)
class RelocationRequest(Message):
    """The request of an operator to run a guest on a host. number: rises with each request."""

    number: int
    kind: str
    host: str


@dataclass(frozen=True)
class HostBinding(Message):
    """The only host on which a guest can run, and why."""

    host: str
    reason: str


@dataclass(frozen=True)
class FenceResult:
    """The result of an attempt to fence: off (the status that was read afterwards), on, or timed
    out."""

    attempt: str
    outcome: str


@dataclass(frozen=True)
class View:
    """What the master observes.

    masters: all masters that may lead; members: the hosts of the configuration. own_config: what
    operators request according to this master's own file, with the stamp of the agreed
    configuration on which the file is based; None if that is not known. config_known: the master
    knows what operators request; otherwise it decides nothing.

    beats: the last heartbeat that came from each host. answered_s: when each host last answered
    through another channel, such as its minion. placement_hosts: hosts as placement knows them.
    fence_levels: the number of a host's fences, which are tried in turn; fences: the last result
    for each host. confirmed: host to its boot, for hosts that an operator confirmed to be off.
    maintenance: hosts that are to be empty. bindings: guests that can run on one host only. armed:
    high availability is to be on. program: the digest of the agents' program in this master's
    library. pools: guest to the shared pools of the hosts that contain its disks; for a guest that
    is missing here, the pools are unknown.
    """

    masters: tuple[str, ...]
    members: tuple[str, ...]
    beats: Mapping[str, ReceivedHeartbeat]
    answered_s: Mapping[str, float] = field(default_factory=dict)
    placement_hosts: Mapping[str, Host] = field(default_factory=dict)
    guests: Mapping[str, GuestConfig] = field(default_factory=dict)
    rules: tuple[GuestRule, ...] = ()
    relocations: Mapping[str, RelocationRequest] = field(default_factory=dict)
    fence_levels: Mapping[str, int] = field(default_factory=dict)
    fences: Mapping[str, FenceResult] = field(default_factory=dict)
    confirmed: Mapping[str, int] = field(default_factory=dict)
    maintenance: frozenset[str] = frozenset()
    bindings: Mapping[str, HostBinding] = field(default_factory=dict)
    armed: bool = True
    own_config: CommittedConfig | None = None
    config_known: bool = True
    policy: HaPolicy = field(default_factory=HaPolicy)
    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    program: str = ""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def storage_silent_s(self, beat: Heartbeat, guest: str) -> float | None:
        """Return for how long the host of that heartbeat has not reached the guest's storage: the
        pools with the guest's disks, or any pool if the guest's pools are unknown."""
        if guest not in self.pools or not beat.pools_silent:
            return beat.storage_silent_s
        return max((beat.pools_silent.get(pool, 0) for pool in self.pools[guest]), default=0)

    @functools.cached_property
    def terms(self) -> Terms:
        """Return the terms that hosts have to announce for their watchdogs to prove anything."""
        return self.policy.terms(self.program)

    @property
    def sole_master(self) -> bool:
        """Return whether no other master exists."""
        return len(self.masters) == 1


@dataclass(frozen=True)
class SavedMasterState(Message):
    """The part of the state that must be on the master's disk before its messages go out."""

    term: int = 0
    registry: Registry = field(default_factory=Registry)
    host_states: dict[str, HostState] = required({})


@dataclass(frozen=True)
class FenceAttempt:
    """The last attempt to fence a host. current: the term and the ballot of the attempt."""

    current: str
    number: int
    at_s: float


@dataclass(frozen=True)
class IdleGuests:
    """Guests that need no action, and the objects from which the master concluded that; see
    ``idle``. These objects are never modified: if another object is in the place of one of them,
    its guests are examined again.

    records, configs: those of all guests. by_host: host to its guests without a change in progress;
    loud: the other guests. statuses: host to its boot and its guests, as the host reported them
    when all of them ran without problems.
    """

    records: Mapping[str, HaGuestRecord] = field(default_factory=dict)
    configs: Mapping[str, GuestConfig] = field(default_factory=dict)
    by_host: Mapping[str, list[str]] = field(default_factory=dict)
    loud: tuple[str, ...] = ()
    statuses: Mapping[str, tuple[int, Mapping[str, GuestStatus]]] = field(default_factory=dict)


@dataclass(frozen=True)
class MasterState:
    """The memory of a master; only ``saved`` survives the master's process.

    began_s: when the master started. term_s: when its term last rose. seq: the number of its last
    message; sent_s: seq to its send time. leading_s: since when the master leads; ready: it knows
    the last registry; committed: the version of the registry that enough hosts store. voted_s: host
    to the ballot, and when a majority had voted. fenced_s: when hosts were fenced. ran_s: guest to
    its epoch, and since when the guest has been seen running. idle: the guests that need not be
    examined again.
    """

    master: str
    saved: SavedMasterState = field(default_factory=SavedMasterState)
    began_s: float = 0
    term_s: float | None = None
    seq: int = 0
    sent_s: dict[int, float] = field(default_factory=dict)
    leading_s: float | None = None
    ready: bool = False
    committed: int = 0
    acks: dict[str, HeartbeatAck] = field(default_factory=dict)
    voted_s: dict[str, tuple[int, float]] = field(default_factory=dict)
    attempts: dict[str, FenceAttempt] = field(default_factory=dict)
    fenced_s: dict[str, float] = field(default_factory=dict)
    ran_s: dict[str, tuple[int, float]] = field(default_factory=dict)
    idle: IdleGuests = field(default_factory=IdleGuests)


@dataclass(frozen=True)
class Fence:
    """A fence agent that is to switch a host off and to read its status. level: which of the host's
    fences."""

    host: str
    level: int
    attempt: str


@dataclass(frozen=True)
class StateChange:
    """One decision, with its reason, for the event bus and the journal."""

    kind: str
    name: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class MasterStep:
    """The result of a decision. The caller acts in this order: write state.saved to the disk, send
    message to each host, run fences."""

    state: MasterState
    message: LeaderMessage
    fences: tuple[Fence, ...] = ()
    changes: tuple[StateChange, ...] = ()


def initial_state(master: str, saved: SavedMasterState, now_s: float) -> MasterState:
    """Return the state of a master that starts."""
    return MasterState(master, saved, began_s=now_s)
