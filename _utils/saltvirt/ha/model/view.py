"""What a master sees, and what it remembers from one decision to the next."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from saltvirt.ha.model.messages import HeartbeatAck, HostState, LeaderMessage, ReceivedHeartbeat
from saltvirt.ha.model.policy import HaPolicy, Terms
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.placement.facts import Guest
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.schema import Message, optional, transient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.ha.model.messages import GuestStatus, Heartbeat
    from saltvirt.ha.model.registry import HaGuestRecord
    from saltvirt.placement.facts import Host

# what a person wants of a guest
STARTED, STOPPED, IGNORED = "started", "stopped", "ignored"
# how it goes back to a better host; live is written down as True
LIVE, RESTART = "live", "restart"
# how a person wants it elsewhere
MIGRATE, RELOCATE = "migrate", "relocate"
# rules
AFFINITY, ANTI_AFFINITY, STRICT, PREFERRED = "together", "apart", "strict", "preferred"
# what a fence agent found
OFF, ON, TIMED_OUT = "off", "on", "timed out"


@dataclass(frozen=True)
class GuestConfig(Message):
    """A guest that a person gave to high availability. host: where it was then. size: as placement
    counts it. failback: to a better host, live; or ``restart``, or not. leased: its disks have a
    lease that only one host can hold. agent_silent_s: it has failed when its guest agent, once
    heard, is silent for so long; 0: never."""

    NAMED_BY: ClassVar[str] = "name"

    name: str
    host: str = ""
    wanted: str = STARTED
    priority: int = 0
    restarts: int = 1
    relocates: int = 1
    failback: bool | str = True
    leased: bool = False
    agent_silent_s: int = optional(0)
    size: Guest = transient(Guest("", vcpus=1, memory_kib=1024**2))


@dataclass(frozen=True)
class GuestRule(Message):
    """Guests together or apart, or on these hosts, with ranks. strict: or else the guest stays
    down."""

    guests: tuple[str, ...]
    kind: str = ""
    hosts: dict[str, int] = field(default_factory=dict)
    strict: bool = True


@dataclass(frozen=True)
class RelocationRequest(Message):
    """A person wants a guest on a host. number: rises with each wish."""

    number: int
    kind: str
    host: str


@dataclass(frozen=True)
class HostBinding(Message):
    """Why a guest can run on that host alone."""

    host: str
    why: str


@dataclass(frozen=True)
class FenceResult:
    """How an attempt to fence ended: off, by the status asked after it, or on, or timed out."""

    attempt: str
    outcome: str


@dataclass(frozen=True)
class View:
    """What the master sees. masters: all that may lead; members: the hosts of the configuration.
    wished: what persons want by this master's own file, and upon what agreed before that was made;
    None where that is not known. known: what persons want is known; else nothing is decided.

    beats: the last that came from each host. answered_s: when it last answered by another way,
    such as its minion. rooms: hosts as placement knows them. fence_levels: how many fences a host
    has, to be tried in turn; fences: the last outcome of each host. confirmed: host to the boot
    of which a person said that it is off. maintenance: hosts that are to be empty. tied: guests
    that can run on one host alone. armed: high availability is to be on. program: the digest of the
    agents' program, as this master's library has it. pools: guests to those of the hosts' shared
    pools that they have disks on; of one that is not there nobody can tell.
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
        """For how long the host of that beat has not reached the guest's storage: the pools that it
        is on, or any where that cannot be told."""
        if guest not in self.pools or not beat.pools_silent:
            return beat.storage_silent_s
        return max((beat.pools_silent.get(pool, 0) for pool in self.pools[guest]), default=0)

    @functools.cached_property
    def terms(self) -> Terms:
        """What hosts have to announce for a watchdog to prove something."""
        return self.policy.terms(self.program)

    @property
    def sole_master(self) -> bool:
        """There is no other master."""
        return len(self.masters) == 1


@dataclass(frozen=True)
class SavedMasterState(Message):
    """What must be on the master's disk before its calls go out."""

    term: int = 0
    registry: Registry = field(default_factory=Registry)
    pledges: dict[str, HostState] = field(default_factory=dict)


@dataclass(frozen=True)
class FenceAttempt:
    """The last attempt to fence a host. current: the term and ballot it was for."""

    current: str
    number: int
    at_s: float


@dataclass(frozen=True)
class IdleGuests:
    """Guests of which nothing is to be done, and by what that is known; see ``quiet``. These are
    the very objects, which nobody changes: what is another object is looked at anew.

    records, wanted: of all guests. by_host: those of which nothing is under way, by their host;
    loud: the others. seen: host to its boot and its guests, as it told them, when all were well.
    """

    records: Mapping[str, HaGuestRecord] = field(default_factory=dict)
    configs: Mapping[str, GuestConfig] = field(default_factory=dict)
    by_host: Mapping[str, list[str]] = field(default_factory=dict)
    loud: tuple[str, ...] = ()
    statuses: Mapping[str, tuple[int, Mapping[str, GuestStatus]]] = field(default_factory=dict)


@dataclass(frozen=True)
class MasterState:
    """What a master remembers; only ``kept`` outlives its process.

    began_s: when it began. term_s: when its term last rose. seq: of its last call; asked_s: seq to
    when it was sent.
    leading_s: since when it leads; ready: it knows the last registry; committed: enough hosts keep
    it up to this version. promised_s: host to the ballot and when a majority had promised.
    fenced_s: when hosts were fenced. ran_s: guest to its epoch and since when it is seen running.
    quiet: what need not be looked at again.
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
    """A fence agent is to switch a host off and ask its status. level: which of its fences."""

    host: str
    level: int
    attempt: str


@dataclass(frozen=True)
class StateChange:
    """One decision, with its reason, for the bus and the journal."""

    kind: str
    name: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class MasterStep:
    """In this order: state.kept is written down, call goes to each host, fences are run."""

    state: MasterState
    message: LeaderMessage
    fences: tuple[Fence, ...] = ()
    changes: tuple[StateChange, ...] = ()


def initial_state(master: str, saved: SavedMasterState, now_s: float) -> MasterState:
    """The state of a master that starts."""
    return MasterState(master, saved, began_s=now_s)
