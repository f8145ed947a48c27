"""What a migration knows of the guest, of its disks, and of the host that it goes to.

A fact that could not be found out is None: it is no reason against a move. Sizes are in bytes where
the name says so; versions of libvirt and QEMU are libvirt's numbers (9002001 is 9.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.answers.creation import Phase
from saltvirt.migration.reservation import Reservation
from saltvirt.placement.facts import Guest
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class StorageServer(Message):
    """One that a network disk, or a pool, is on."""

    name: str | None = None
    port: str | None = None
    transport: str | None = optional(None)


@dataclass(frozen=True)
class NetworkSource(Message):
    """What a disk of ``type='network'`` comes from."""

    protocol: str | None = None
    name: str | None = None
    hosts: tuple[StorageServer, ...] = ()


@dataclass(frozen=True)
class PoolSourceReport(Message):
    """Where libvirt has a storage pool from."""

    hosts: tuple[StorageServer, ...] = ()
    devices: tuple[str, ...] = ()
    dir: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class PoolReport(Message):
    """A storage pool. folder: where its volumes are."""

    name: str | None
    type: str | None = ""
    folder: str = ""
    source: PoolSourceReport = PoolSourceReport()


@dataclass(frozen=True)
class DeviceIdentity(Message):
    """volume: the UUID that LVM gave the logical volume, or None. devices: the numbers of the
    devices that hold it; None, or no text, for one without a number."""

    volume: str | None = None
    devices: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class VolumeIdentity(Message):
    """A pool's volume, as libvirt knows it; and the device that it is."""

    key: str | None = None
    size_bytes: int = 0
    device: DeviceIdentity | None = None


@dataclass(frozen=True)
class BackingFile(Message):
    """An image, and mostly one that a disk is based on.

    used_bytes: allocated; file_bytes: how long the file is. fs: type of the file system. own: it
    was made for this guest. data_file: what has its data instead.
    """

    path: str
    format: str = ""
    size_bytes: int = 0
    used_bytes: int = 0
    file_bytes: int = 0
    fs: str | None = None
    own: bool = False
    data_file: str | None = optional(None)


@dataclass(frozen=True)
class DiskReport(Message):
    """A disk of the guest. target: ``vda``; device: disk, cdrom, floppy, lun.

    type: what it is in the end: file, block, network, …; source: its path. size_bytes: its
    virtual size; used_bytes: allocated. fs: type of the file system. chain: its backing files,
    nearest first. pool, volume: of a pool's volume; network: of a network disk; identity: of a
    device or a volume. trouble: why it could not be looked at. seed: it is the volume that seeds
    the guest, and was made for it. encrypted: QEMU encrypts it (LUKS).
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
    trouble: str | None = optional(None)
    seed: bool = optional(False)
    encrypted: bool = optional(False)

    @property
    def key(self) -> str:
        """By what the target's PlaceReport of a disk is found: its path, or pool and volume."""
        return f"{self.pool.name}/{self.volume}" if self.pool else self.source or ""

    @property
    def is_local(self) -> bool:
        """Whether it is in a file, or a device, of the host."""
        return self.type in ("file", "block")


@dataclass(frozen=True)
class NicReport(Message):
    """A network interface of the guest. source: the bridge, network or link it is plugged into."""

    type: str | None
    source: str | None
    mac: str


@dataclass(frozen=True)
class HostCpu(Message):
    """The CPU of a host by its libvirt's capabilities: its model, and the features beyond that."""

    vendor: str | None = None
    model: str | None = None
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SecretReference(Message):
    """A secret of libvirt to which a device of the guest refers. device: in words. uuid: None where
    the guest's host does not have it either. usage: what it is for, in words, or None. usage_type,
    usage_id: where the guest names it by its usage: each host may have it under its own UUID."""

    device: str
    uuid: str | None = None
    usage: str | None = None
    usage_type: str | None = optional(None)
    usage_id: str | None = optional(None)


@dataclass(frozen=True)
class GuestReport(Message):
    """The guest, as its host tells of it; also in the journal of its migration.

    host, host_uuid: where it is. job: what libvirt is doing to it. snapshots: how many.
    memory_kib: its maximum. page_kib: as placement's Guest has it. emulator: the program
    that it runs by. nvram: the file of the firmware's variables, "" where they are in no file.
    cpu: the XML of the CPU it runs with. hostdevs: host devices that it has; filesystems: folders
    of the host that are mounted in it. apart: files of snapshots on which no disk stands.
    stands_on: the backup from which it runs as long as not all its blocks are here. host_cpu: that
    of its host, where the guest has just that (``host-passthrough``). phase: of its creation.
    process: what tells the process that runs it from an earlier and a later one. cid: of its vsock,
    where it has a fixed one. secrets: of libvirt, that it needs to start. later: disks that it gets
    at its next start, by its definition.
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
    apart: tuple[str, ...] = ()
    stands_on: str | None = None
    host_cpu: HostCpu | None = optional(None)
    phase: str = optional(Phase.COMPLETE.value)
    process: str | None = optional(None)
    cid: int | None = optional(None)
    secrets: tuple[SecretReference, ...] = optional(())
    later: tuple[DiskReport, ...] = optional(())

    @property
    def all_disks(self) -> tuple[DiskReport, ...]:
        """Those that it has, and those that it gets."""
        return (*self.disks, *self.later)


@dataclass(frozen=True)
class LocationReport:
    """What the target has where a disk, or a file that it is based on, is or would be.

    shared: True and False are proven, else None, with ``why``. path: where it is or would be there.
    pool: the user's storage pool it is in. trouble: why it cannot be there. Of a backing file
    ``same`` (it has our bytes) and ``coming`` (another migration is copying it just now).
    """

    exists: bool = False
    shared: bool | None = None
    reason: str | None = None
    path: str | None = None
    pool: str | None = None
    error: str | None = None
    same_content: bool | None = None
    incoming: bool = False


# of a place of which the target was not asked
UNKNOWN_LOCATION = LocationReport()


@dataclass(frozen=True)
class DomainReport:
    """A guest that the target has, its MAC addresses, and the CIDs of its vsock: those that it has
    by its definition and as it runs."""

    guest: Guest
    macs: tuple[str, ...] = ()
    cids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class MachineReport:
    """What the target has for the guest's machine type.

    error: why it has none, in libvirt's words. max_vcpus: how many it gives a guest. emulator: the
    program that runs it there; has_emulator: whether the guest's own one is there, too.
    """

    error: str | None = None
    max_vcpus: int | None = None
    emulator: str | None = None
    has_emulator: bool | None = None


@dataclass(frozen=True)
class TargetReport:
    """The host that a guest is to go to, as far as this guest needs it.

    hugepages: size in KiB to how many KiB they are. domains: its guests; reservations: of those
    on their way to it. growth: folder to the bytes by which the disks of its guests may still grow.
    networks: name to whether it is started. bridges, links: names. cpu_error: why the guest's CPU
    does not run there; cpu: that of the host. places: by a DiskReport's key or a path. free_bytes:
    by folder. lacking: secrets to which the guest refers and that it does not have.
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
        """What it has at a place; UNSEEN of one that it was not asked about."""
        return self.locations.get(key, UNKNOWN_LOCATION)
