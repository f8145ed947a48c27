"""Answers about the networks, pools and images of a host, and about the addresses of guests."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.answers.guests import GuestInfo
from saltvirt.answers.snapshots import SnapshotInfo
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class NetworkSummary(Message):
    """A libvirt network. pending: its definition differs from the active network. addresses: of the
    host, with prefixes. leases: number of its DHCP leases. guests: those with an interface in it.
    error: why it could not be read."""

    uuid: str = ""
    active: bool = False
    autostart: bool = False
    persistent: bool = False
    pending: bool = False
    forward: str | None = None
    bridge: str | None = None
    addresses: tuple[str, ...] = ()
    leases: int = 0
    guests: tuple[str, ...] = ()
    error: str | None = optional(None)


@dataclass(frozen=True)
class BridgeSummary(Message):
    """A bridge of the host that is not a network of libvirt. guests: as for NetworkSummary."""

    guests: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostNetworks(Message):
    """The networks and the bridges of a host by name."""

    networks: dict[str, NetworkSummary]
    bridges: dict[str, BridgeSummary]


@dataclass(frozen=True)
class PoolSummary(Message):
    """A storage pool, as in `virt.pool_info`. Sizes are in bytes. error: why it could not be
    read."""

    uuid: str = ""
    type: str | None = None
    state: str = ""
    capacity: int = 0
    allocation: int = 0
    free: int = 0
    autostart: bool = False
    persistent: bool = False
    pending: bool = False
    target_path: str | None = None
    error: str | None = optional(None)


@dataclass(frozen=True)
class VolumeSummary(Message):
    """A volume of a storage pool. capacity: virtual size, allocation: what it takes of its pool, in
    bytes. used_by: guests that use it as a disk or as a backing image. error: why it could not be
    read."""

    type: str = ""
    format: str | None = None
    path: str = ""
    capacity: int = 0
    allocation: int = 0
    used_by: tuple[str, ...] = ()
    error: str | None = optional(None)


@dataclass(frozen=True)
class PoolVolumes(Message):
    """The volumes of a storage pool by name. error: why the pool could not be read."""

    volumes: dict[str, VolumeSummary] = field(default_factory=dict)
    error: str | None = optional(None)


@dataclass(frozen=True)
class ImageSummary(Message):
    """An image in the cache of a host, as in `virt.images`. size_bytes: virtual size.
    allocated_bytes: on the host. used_by: guests that are based on it, and volumes without
    guest."""

    path: str
    source: str
    format: str
    size_bytes: int
    allocated_bytes: int
    sha256: str
    fetched: str
    used_by: tuple[str, ...]


@dataclass(frozen=True)
class AddressInfo(Message):
    """An IP address of a guest. prefix: its length in bits; None if unknown. type: `ipv4` or
    `ipv6`. interface: name in the guest if its agent reports it, else on the host. sources:
    `agent`, `lease`, `arp`."""

    address: str
    prefix: int | None
    type: str
    mac: str
    interface: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class GuestAddresses(Message):
    """The addresses of a guest. agent: whether its guest agent is connected."""

    state: str
    agent: bool
    addresses: tuple[AddressInfo, ...]


@dataclass(frozen=True, kw_only=True)
class Rates(Message):
    """Bytes per second; None if unknown."""

    disk_read_bytes_s: int | None = None
    disk_written_bytes_s: int | None = None
    network_received_bytes_s: int | None = None
    network_sent_bytes_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class GuestUsage(Rates):
    """What a guest uses. cpu_percent: 100 is one CPU; None if unknown. memory_bytes: allocated now.
    memory_used_bytes: as its balloon driver reports it; None without one."""

    state: str
    vcpus: int
    cpu_percent: float | None = None
    memory_bytes: int = 0
    memory_used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class HostUsage(Rates):
    """What a host and its guests use. cpu_percent: 100 is all CPUs. load: of 1, 5 and 15 minutes.
    memory_allocated_bytes, vcpus_allocated: of running guests. pressure: the share of the last ten
    seconds in percent in which a process waited for `cpu`, `memory` or `io`; None if the kernel
    does not report it. The rates are those of all guests. seconds: the time over which the rates
    were measured."""

    cpus: int
    cpu_percent: float | None = None
    load: tuple[float, ...] = ()
    memory_bytes: int = 0
    memory_used_bytes: int = 0
    memory_allocated_bytes: int = 0
    vcpus_allocated: int = 0
    pressure: dict[str, float] | None = None
    seconds: float | None = None
    guests: dict[str, GuestUsage]


@dataclass(frozen=True)
class GuestDetails(GuestInfo):
    """All that a host knows about a guest. addresses: also those that the guest agent reports.
    snapshots: the oldest first. usage: None if the guest is off. unknown: key to the reason why its
    value is not complete."""

    snapshots: tuple[SnapshotInfo, ...] = ()
    usage: GuestUsage | None = None
    unknown: dict[str, str] = optional({})
