"""Answers of hosts about backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from saltvirt.backup.model import record
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message, optional
from saltvirt.xml.domain.domain import Domain


@dataclass(frozen=True)
class InspectedDisk(Message):
    """A disk that can be backed up.

    target: libvirt's name. size_bytes: as the guest sees it. source: identifies the source in the
    definition; stays the same as long as the source does. format: of its file. bitmaps: of its top
    file, name to state; see `chains`. encrypted: libvirt encrypts the disk, and QEMU exports it in
    plain. old: a qcow2 file of version 2, which cannot store bitmaps.
    """

    target: str
    size_bytes: int
    source: str
    format: str = record.QCOW2
    bitmaps: dict[str, str] = field(default_factory=dict)
    encrypted: bool = optional(False)
    old: bool = optional(False)

    @property
    def supports_bitmaps(self) -> bool:
        """Whether the disk's file can store the bitmaps that increments need."""
        return self.format == record.QCOW2 and not self.old


@dataclass(frozen=True)
class GuestInspection(Message):
    """Answer of `virt.backup_look`. checkpoints: names of those that libvirt knows. name: of the
    guest. skipped: disk to the reason why it is not backed up."""

    uuid: str
    active: bool
    disks: tuple[InspectedDisk, ...]
    checkpoints: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class PlannedDisk(Message):
    """How to back up a disk.

    parent: the backup on which the increment depends; since: libvirt's checkpoint for it. Both are
    None for a full backup, and reason is set. encrypt: encrypt all disks of the backup at the
    target.
    """

    target: str
    parent: str | None = None
    since: str | None = None
    reason: str | None = None
    encrypt: bool = optional(False)


@dataclass(frozen=True)
class BackupPlan(Message):
    """Answer of `virt.backup_plan`.

    backup_id: of the next backup. needed: checkpoints from which the next increments at this target
    begin. superseded: checkpoints of the guest that backups at this target made and no longer need.
    guest, host: of the last backup of this UUID. reader: the authority that `virt.backup_reader`
    with ``once`` returns, if requested.
    """

    backup_id: str
    disks: tuple[PlannedDisk, ...]
    needed: tuple[str, ...] = ()
    guest: str | None = None
    host: str | None = None
    reader: str | None = None
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupReader(Message):
    """Answer of `virt.backup_reader`. authority: of its client certificate, in PEM."""

    authority: str


@dataclass(frozen=True)
class ServedDisk(Message):
    """An exported disk.

    export: name of the NBD export. contexts: bitmaps of an increment. checkpoint: from which the
    next increment begins.
    """

    target: str
    size_bytes: int
    source: str
    export: str
    contexts: tuple[str, ...] = ()
    parent: str | None = None
    reason: str | None = None
    checkpoint: str | None = None


@dataclass(frozen=True)
class Serving(Message):
    """Answer of `virt.backup_begin`.

    host: name in the server certificate. authority: of this certificate, in PEM; the reader trusts
    no other. note: why the file systems were not frozen. taken_at: the moment of the disks by the
    clock of this host, as in a record. skipped: part of the guest to the reason why it is not
    backed up. state: firmware variables and TPM state, exported on state_port.
    """

    uuid: str
    host: str
    port: int
    consistency: str
    definition: str
    disks: tuple[ServedDisk, ...]
    authority: str
    note: str | None = None
    taken_at: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    state: ServedDisk | None = optional(None)
    state_port: int | None = optional(None)


@dataclass(frozen=True)
class ServingEnd(Message):
    """Answer of `virt.backup_end`. reason: why the export had ended before. leftovers: what
    could not be removed, and why."""

    reason: str | None = None
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupResult(Message):
    """Answer of `virt.backup_pull`. moved_bytes: bytes read from the host."""

    backup_id: str
    stored_bytes: int
    moved_bytes: int
    checkpoints: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedBackup(Message):
    """A backup in the answer of `virt.backup_list`.

    problem: why the backup is not good. skipped: part of the guest that is not backed up to the
    reason. broken_disks: disk to its problem. age_s: by the clock of the target host.
    """

    backup_id: str
    taken_at: str | None = None
    host: str | None = None
    guest: str | None = None
    uuid: str | None = None
    consistency: str | None = None
    disks: dict[str, str] = field(default_factory=dict)
    stored_bytes: int = 0
    problem: str | None = None
    skipped: dict[str, str] = optional({})
    broken_disks: dict[str, str] = optional({})
    age_s: int | None = optional(None)


@dataclass(frozen=True)
class ShownDisk(Message):
    """A disk of a backup that is exported under its own name."""

    target: str
    size_bytes: int


@dataclass(frozen=True)
class ShownBackup(Message):
    """Answer of `virt.backup_show`.

    guest: name of the guest. host: name in the target host's certificate. authority: of this
    certificate, in PEM; the reader trusts no other. damaged: some blocks may be unreadable. state:
    firmware variables and TPM state.
    """

    backup_id: str
    guest: str
    host: str
    port: int
    definition: str
    disks: tuple[ShownDisk, ...]
    authority: str
    damaged: bool = optional(False)
    state: ShownDisk | None = optional(None)

    @property
    def seeded(self) -> bool:
        """Whether the guest was seeded, according to its definition. Raises BadAnswer."""
        try:
            return bool(Domain.fromstring(self.definition).record.seeded)
        except ElementTree.ParseError as exc:
            raise BadAnswer(
                f"{self.host}: the definition in the backup is not valid XML: {exc}"
            ) from exc


@dataclass(frozen=True)
class InPlaceCheck(Message):
    """Answer of `virt.backup_over`.

    active: the guest is running. reasons: what prevents an in-place restore. unconfirmed: the
    backup that replaced the guest and is not confirmed yet.
    """

    uuid: str
    active: bool
    reasons: tuple[str, ...] = ()
    unconfirmed: str | None = None


@dataclass(frozen=True)
class RestoredDisk(Message):
    """Answer of `virt.backup_disk`."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class UndoResult(Message):
    """Answer of `virt.backup_undo`.

    leftovers: what could not be removed, and why. detached: paths of disks that were attached after
    the restore; their files remain, the guest no longer has them.
    """

    leftovers: tuple[str, ...] = ()
    detached: tuple[str, ...] = optional(())
