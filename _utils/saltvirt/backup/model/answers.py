"""What hosts answer of backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree

from saltvirt.backup.model import record
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message, optional
from saltvirt.xml.domain.domain import Domain


@dataclass(frozen=True)
class InspectedDisk(Message):
    """A disk that can be backed up; see `backups.chains.DiskSeen`. bitmaps: name to its state.
    encrypted: by libvirt, which shows it in plain. old: a qcow2 file of the version that can store
    no bitmap."""

    target: str
    size_bytes: int
    source: str
    format: str
    bitmaps: dict[str, str] = field(default_factory=dict)
    encrypted: bool = optional(False)
    old: bool = optional(False)

    @property
    def supports_bitmaps(self) -> bool:
        """Whether its file can store the bitmaps from which increments are taken."""
        return self.format == record.QCOW2 and not self.old


@dataclass(frozen=True)
class GuestInspection(Message):
    """What `virt.backup_look` answers. name: the guest's. skipped: disk to why it is in no
    backup."""

    uuid: str
    active: bool
    disks: tuple[InspectedDisk, ...]
    checkpoints: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class PlannedDisk(Message):
    """How a disk is to be taken; see `backups.chains.DiskPlan`. sealed: it is encrypted at the
    target, and so is all that belongs to it."""

    target: str
    parent: str | None = None
    since: str | None = None
    reason: str | None = None
    sealed: bool = optional(False)


@dataclass(frozen=True)
class BackupPlan(Message):
    """What `virt.backup_plan` answers. ident: of the next backup there. needed: the checkpoints
    from which next increments at this target begin. superseded: those of the guest that backups
    here made, and from which none begins. guest, host: of the last backup of that UUID
    there. reader: what `virt.backup_reader` with ``once`` would say, where it was asked for."""

    ident: str
    disks: tuple[PlannedDisk, ...]
    needed: tuple[str, ...] = ()
    guest: str | None = None
    host: str | None = None
    reader: str | None = None
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupReader(Message):
    """What `virt.backup_reader` answers. authority: of the certificate that it shows, in PEM."""

    authority: str


@dataclass(frozen=True)
class ServedDisk(Message):
    """A disk that is served. export: its name. contexts: of the bitmaps of an increment.
    checkpoint: from which the next increment can be had."""

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
    """What `virt.backup_begin` answers. host: as in the certificate that it shows. authority: of
    that, in PEM; who reads trusts no other. note: why file systems were not frozen.
    when: the moment of the disks, as a record has it, by the clock of that host. skipped: what of
    the guest is in no backup, and why. state: what it has beside the disks, on a port of its own,
    state_port."""

    uuid: str
    host: str
    port: int
    consistency: str
    definition: str
    disks: tuple[ServedDisk, ...]
    authority: str
    note: str | None = None
    when: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    state: ServedDisk | None = optional(None)
    state_port: int | None = optional(None)


@dataclass(frozen=True)
class ServingEnd(Message):
    """What `virt.backup_end` answers. why: it had ended before, by itself. left: what could not be
    taken away, and why."""

    why: str | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class BackupResult(Message):
    """What `virt.backup_pull` answers. moved_bytes: so much was read from the host."""

    ident: str
    stored_bytes: int
    moved_bytes: int
    checkpoints: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedBackup(Message):
    """A backup in what `virt.backup_list` answers. wrong: why it is not good. skipped: what of the
    guest is not in it, and why. broken: disk to what is wrong with it. age_s: by the clock of the
    machine that has it."""

    ident: str
    when: str | None = None
    host: str | None = None
    guest: str | None = None
    uuid: str | None = None
    consistency: str | None = None
    disks: dict[str, str] = field(default_factory=dict)
    stored_bytes: int = 0
    wrong: str | None = None
    skipped: dict[str, str] = optional({})
    broken: dict[str, str] = optional({})
    age_s: int | None = optional(None)


@dataclass(frozen=True)
class ShownDisk(Message):
    """A disk of a backup that is shown under its own name."""

    target: str
    size_bytes: int


@dataclass(frozen=True)
class ShownBackup(Message):
    """What `virt.backup_show` answers. guest: whose it is. host: as in the certificate that the
    machine of the target shows. authority: of that, in PEM; who reads trusts no other. damaged:
    some of its blocks may not be readable. state: what the guest had beside its disks."""

    ident: str
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
        """Whether the guest was seeded, by the record in its definition. Raises BadAnswer."""
        try:
            return bool(Domain.fromstring(self.definition).record.seeded)
        except ElementTree.ParseError as exc:
            raise BadAnswer(f"{self.host} shows a definition that is no XML: {exc}") from exc


@dataclass(frozen=True)
class InPlaceCheck(Message):
    """What `virt.backup_over` answers. active: the guest runs. why: all that is against a backup's
    taking its place. waits: the backup that has taken it and was not confirmed yet."""

    uuid: str
    active: bool
    why: tuple[str, ...] = ()
    waits: str | None = None


@dataclass(frozen=True)
class RestoredDisk(Message):
    """What `virt.backup_disk` answers."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class UndoResult(Message):
    """What `virt.backup_undo` answers. left: what could not be taken away, and why. detached: paths
    of disks that were attached since, which stay, and which the guest has no more."""

    left: tuple[str, ...] = ()
    detached: tuple[str, ...] = optional(())
