"""The facts about the guest, its disks and the target that a migration's checks need.

A fact that is None is unknown, and no reason against a migration. Names with a unit are in that
unit; versions of libvirt and QEMU are libvirt's numbers (9002001 is 9.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.answers.creation import Phase
from saltvirt.migration.reservation import Reservation
from saltvirt.placement.facts import Guest
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class StorageServer(Message):
    """A server of a network disk or a pool."""

    name: str | None = None
    port: str | None = None
    transport: str | None = optional(None)


@dataclass(frozen=True)
class NetworkSource(Message):
    """The source of a disk of ``type='network'``."""

    protocol: str | None = None
    name: str | None = None
    hosts: tuple[StorageServer, ...] = ()


@dataclass(frozen=True)
class PoolSourceReport(Message):
    """The source of a storage pool."""

    hosts: tuple[StorageServer, ...] = ()
    devices: tuple[str, ...] = ()
    dir: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class PoolReport(Message):
    """A storage pool. folder: of its volumes."""

    name: str | None
    type: str | None = ""
    folder: str = ""
    source: PoolSourceReport = PoolSourceReport()


@dataclass(frozen=True)
class DeviceIdentity(Message):
    """volume: LVM's UUID of the logical volume, or None. devices: the world-wide numbers of its
    devices; None or an empty text for a device without one."""

    volume: str | None = None
    devices: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class VolumeIdentity(Message):
    """A pool's volume as libvirt knows it, and its device."""

    key: str | None = None
    size_bytes: int = 0
    device: DeviceIdentity | None = None


@dataclass(frozen=True)
class BackingFile(Message):
    """An image, mostly the backing file of a disk.

    used_bytes: allocated; file_bytes: length of the file. fs: type of the file system. owned: it
    was created for this guest. data_file: an external data file.
    """

    path: str
    format: str = ""
    size_bytes: int = 0
    used_bytes: int = 0
    file_bytes: int = 0
    fs: str | None = None
    owned: bool = False
    data_file: str | None = optional(None)


@dataclass(frozen=True)
class DiskReport(Message):
    """A disk of the guest. target: ``vda``; device: disk, cdrom, floppy, lun.

    type: the resolved type: file, block, network, …; source: its path. size_bytes: virtual size;
    used_bytes: allocated. fs: type of the file system. chain: its backing files, nearest first.
    pool, volume: for a volume of a pool; network: for a network disk; identity: of a device or a
    volume. error: why it could not be inspected. seed: it is the cloud-init volume that was made
    for the guest. encrypted: QEMU encrypts it (LUKS).
    """

    target: str
    type: str
    source: str | None = None
    device: str = "disk"
    format: str = "raw"
    cache: str = ""
    discard: str = ""
    read_only: bool = False
    shareable: bool = False
    size_bytes: int = 0
    used_bytes: int = 0
    fs: str | None = None
    chain: tuple[BackingFile, ...] = ()
    pool: PoolReport | None = optional(None)
    volume: str | None = optional(None)
    network: NetworkSource | None = optional(None)
    identity: VolumeIdentity | None = optional(None)
    error: str | None = optional(None)
    seed: bool = optional(False)
    encrypted: bool = optional(False)

    @property
    def key(self) -> str:
        """The key of the disk in the target's locations: its path, or pool and volume."""
        return f"{self.pool.name}/{self.volume}" if self.pool else self.source or ""

    @property
    def is_local(self) -> bool:
        """Whether it is in a file, or a device, of the host."""
        return self.type in ("file", "block")


@dataclass(frozen=True)
class NicReport(Message):
    """A network interface of the guest. source: its bridge, network or link."""

    type: str | None
    source: str | None
    mac: str


@dataclass(frozen=True)
class HostCpu(Message):
    """The CPU of a host in libvirt's capabilities: its model, and the features beyond that."""

    vendor: str | None = None
    model: str | None = None
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SecretReference(Message):
    """A libvirt secret that a device of the guest refers to. device: a description. uuid: None if
    the guest's host does not have it either. usage: a description, or None. usage_type, usage_id:
    if the guest refers to it by usage, because each host may have it under its own UUID."""

    device: str
    uuid: str | None = None
    usage: str | None = None
    usage_type: str | None = optional(None)
    usage_id: str | None = optional(None)


@dataclass(frozen=True)
class GuestReport(Message):
    """The guest, as its host reports it; also stored in the journal of its migration.

    host, host_uuid: its current host. job: libvirt's current job. snapshots: their number.
    memory_kib: its maximum. page_kib: as in placement's Guest. nvram: the file of firmware
    variables, "" if they are not in a file. cpu: the XML of the CPU. hostdevs: host devices;
    filesystems: folders of the host that are mounted in it. orphaned_layers: files of snapshots
    that no disk depends on. incomplete: why its disks are not complete on its host. host_cpu: that
    of its host, if the guest has exactly that (``host-passthrough``). phase: of its creation.
    process: identifies the process that runs it. cid: its fixed vsock CID. secrets: libvirt secrets
    that it needs to start. pending_disks: disks that it gets at its next start.
    """

    name: str
    uuid: str
    host: str
    active: bool
    state: str
    host_uuid: str | None = None
    persistent: bool = True
    autostart: bool = False
    job: str | None = None
    managed_save: bool = False
    snapshots: int = 0
    hypervisor: str = ""
    qemu: int = 0
    libvirt: int = 0
    memory_kib: int = 0
    vcpus: int = 1
    page_kib: int | None = None
    arch: str | None = None
    machine: str | None = None
    virt_type: str | None = None
    emulator: str | None = None
    nvram: str | None = None
    cpu: str | None = None
    nics: tuple[NicReport, ...] = ()
    hostdevs: tuple[str, ...] = ()
    filesystems: tuple[str | None, ...] = ()
    tpm: bool = False
    disks: tuple[DiskReport, ...] = ()
    orphaned_layers: tuple[str, ...] = ()
    incomplete: str | None = None
    host_cpu: HostCpu | None = optional(None)
    phase: str = optional(Phase.COMPLETE.value)
    process: str | None = optional(None)
    cid: int | None = optional(None)
    secrets: tuple[SecretReference, ...] = optional(())
    pending_disks: tuple[DiskReport, ...] = optional(())

    @property
    def all_disks(self) -> tuple[DiskReport, ...]:
        """Its current disks, and those of its next start."""
        return (*self.disks, *self.pending_disks)


@dataclass(frozen=True)
class LocationReport:
    """What the target has where a disk or a backing file is, or would be.

    shared: True and False are verified, otherwise None with ``reason``. path: on the target. pool:
    the operator's storage pool that contains it. error: why it cannot be there. For a backing file
    ``same_content`` (equal bytes) and ``incoming`` (another migration is copying it now).
    """

    exists: bool = False
    shared: bool | None = None
    reason: str | None = None
    path: str | None = None
    pool: str | None = None
    error: str | None = None
    same_content: bool | None = None
    incoming: bool = False


# of a location that was not queried
UNKNOWN_LOCATION = LocationReport()


@dataclass(frozen=True)
class DomainReport:
    """A guest of the target, its MAC addresses, and the CIDs of its vsock: by its definition and as
    it runs."""

    guest: Guest
    macs: tuple[str, ...] = ()
    cids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class MachineReport:
    """The target's support for the guest's machine type.

    error: libvirt's error without support. max_vcpus: maximum for a guest. emulator: the program
    that runs it there; has_emulator: whether the guest's own emulator exists, too.
    """

    error: str | None = None
    max_vcpus: int | None = None
    emulator: str | None = None
    has_emulator: bool | None = None


@dataclass(frozen=True)
class TargetReport:
    """The target, as far as this guest needs it.

    hugepages: their total in KiB by page size in KiB. domains: its guests; reservations: of guests
    that are being moved to it. growth: bytes by which disks of its guests may still grow, by
    folder. networks: name to whether it is started. bridges, links: names. cpu_error: why the
    guest's CPU does not run there; cpu: that of the host. locations: by a DiskReport's key or a
    path. free_bytes: by folder. missing_secrets: secrets of the guest that it does not have.
    """

    hostname: str
    host_uuid: str | None = None
    hypervisor: str = ""
    qemu: int = 0
    libvirt: int = 0
    cpus: int = 0
    memory_kib: int = 0
    hugepages: dict[int, int] = field(default_factory=dict)
    domains: tuple[DomainReport, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    growth: dict[str, int] = field(default_factory=dict)
    networks: dict[str, bool] = field(default_factory=dict)
    links: list[str] | None = None
    bridges: list[str] | None = None
    machine: MachineReport = MachineReport()
    cpu_error: str | None = None
    cpu: HostCpu | None = None
    locations: dict[str, LocationReport] = field(default_factory=dict)
    free_bytes: dict[str, int | None] = field(default_factory=dict)
    missing_secrets: tuple[SecretReference, ...] = ()

    def location(self, key: str) -> LocationReport:
        """Return what it has at a location; UNKNOWN_LOCATION if that was not queried."""
        return self.locations.get(key, UNKNOWN_LOCATION)
