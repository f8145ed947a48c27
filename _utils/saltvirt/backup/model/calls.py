"""The calls of backups that the master makes to hypervisors and to the machines of targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.created import CreatedGuest
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupReader,
    BackupResult,
    GuestInspection,
    InPlaceCheck,
    PlannedDisk,
    RestoredDisk,
    Serving,
    ServingEnd,
    ShownBackup,
)
from saltvirt.backup.model.chains import CHAIN
from saltvirt.backup.model.pins import BackupPin, LiveRestoreStatus, PinnedBackup
from saltvirt.placement.account import PlacementTerms
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class ReaderRequest(Message):
    """Issue the certificate with which this machine reads an export.

    once: a new one for a single reading, so that the exporting machine cannot lead this one to what
    another machine exports meanwhile. Otherwise the permanent one of this machine.
    """

    once: bool = False


@dataclass(frozen=True)
class InspectRequest(Message):
    """Which disks of a guest can be backed up."""

    name: str


@dataclass(frozen=True)
class PlanRequest(Message):
    """Plan the next backup of a guest from the existing backups of a target.

    host: the hypervisor of the guest. look: how its disks are. whole: read all disks in full.
    chain: maximum length of a chain. mounted: the folder must be a mount point. key: name of the
    encryption key. reader: issue a certificate for the reading, too.
    """

    folder: str
    host: str
    look: GuestInspection
    whole: bool = False
    chain: int = CHAIN
    mounted: bool = False
    key: str | None = None
    reader: bool = False


@dataclass(frozen=True)
class BeginRequest(Message):
    """Export the disks of a guest to the one machine that reads them.

    ident: name of the backup. reader: authority of the only certificate that is admitted.
    """

    name: str
    ident: str
    disks: tuple[PlannedDisk, ...]
    reader: str


@dataclass(frozen=True)
class EndExportRequest(Message):
    """End the export of a guest's disks.

    ident: name of the backup. good: the backup is complete. needed: checkpoints to keep then.
    """

    name: str
    ident: str
    good: bool = False
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullRequest(Message):
    """Read the disks that a hypervisor exports, and store them as a backup.

    serving: the export. by: the user who requested the backup. bandwidth: limit in MiB/s. reader:
    the one-time authority that the target's machine issued; None: its permanent one.
    """

    folder: str
    name: str
    ident: str
    host: str
    serving: Serving
    by: str = "root"
    mounted: bool = False
    bandwidth: int | None = None
    key: str | None = None
    reader: str | None = None
    compress: str | None = None


@dataclass(frozen=True)
class ShowBackupRequest(Message):
    """Export a backup to the one hypervisor that restores it.

    uuid: of the guest. backup: name or number, or ``latest``. reader: authority of the only
    certificate that is admitted. stand: the guest that runs from the backup; it keeps the backup
    from being removed. disk: only this disk. damaged: also a backup that is not good.
    """

    folder: str
    uuid: str
    backup: str
    reader: str
    mounted: bool = False
    stand: BackupPin | None = optional(None)
    disk: str | None = optional(None)
    damaged: bool = optional(False)


@dataclass(frozen=True)
class HideBackupRequest(Message):
    """End all exports of backups to a reader."""

    reader: str


@dataclass(frozen=True)
class RestoreGuestRequest(Message):
    """Create a guest from an exported backup.

    itself: restore the original guest, which does not exist any more. over: replace the existing
    guest; stop: power it off for that; disk: replace this disk only. instant: start the guest at
    once and copy its blocks meanwhile, at most bandwidth MiB/s. reader: the one-time authority that
    the hypervisor issued; None: its permanent one. seed: give the system in a second guest an
    identity; None: if the original was seeded. overcommit: also if the host lacks capacity.
    placement: the master's policy.
    """

    name: str
    shown: ShownBackup
    itself: bool = False
    over: bool = optional(False)
    stop: bool = optional(False)
    disk: str | None = optional(None)
    instant: bool = optional(False)
    bandwidth: int | None = optional(None)
    reader: str | None = None
    seed: bool | None = optional(None)
    overcommit: bool | None = None
    placement: PlacementTerms | None = None


@dataclass(frozen=True)
class RestoreDiskRequest(Message):
    """Copy one disk of an exported backup to a file that no guest has. See RestoreGuestRequest."""

    name: str
    shown: ShownBackup
    disk: str
    reader: str | None = None
    overcommit: bool | None = None
    placement: PlacementTerms | None = None


@dataclass(frozen=True)
class InPlaceCheckRequest(Message):
    """Whether a backup can replace a guest. stop: it may be powered off for that."""

    name: str
    stop: bool = False


@dataclass(frozen=True)
class ScheduleRequest(Message):
    """Set the backup setting of a guest, as text; the answer is the previous one. test: change
    nothing."""

    name: str
    wish: str
    test: bool = False


@dataclass(frozen=True)
class LiveRestoreRequest(Message):
    """The status of a guest that may run from a backup."""

    name: str


@dataclass(frozen=True)
class ResumeRequest(Message):
    """Resume the live restore of a guest on its hypervisor.

    shown: the backup, as the machine of the target exports it. reader: the one-time authority that
    the hypervisor issued. bandwidth: the maximum in MiB/s; None: no limit.
    """

    name: str
    shown: ShownBackup
    reader: str
    bandwidth: int | None = None


@dataclass(frozen=True)
class PinsRequest(Message):
    """The guests that run from the backups in the folder of a target.

    mounted: the folder must be a mount point.
    """

    folder: str
    mounted: bool = False


@dataclass(frozen=True)
class UnpinRequest(Message):
    """Release a backup from which a guest no longer runs.

    uuid: the UUID of the guest that was backed up. guest, host: the guest that ran from the backup,
    and its hypervisor.
    """

    folder: str
    uuid: str
    backup: str
    guest: str
    host: str
    mounted: bool = False


LIVE_RESTORE_STATUS = Call("backup_standing", LiveRestoreRequest, LiveRestoreStatus)
RESUME_LIVE_RESTORE = Call("backup_again", ResumeRequest, LiveRestoreStatus)
LIST_PINS = Call("backup_stands", PinsRequest, list[PinnedBackup])
UNPIN = Call("backup_let_go", UnpinRequest, bool)

ISSUE_READER = Call("backup_reader", ReaderRequest, BackupReader)
INSPECT_GUEST = Call("backup_look", InspectRequest, GuestInspection)
PLAN_BACKUP = Call("backup_plan", PlanRequest, BackupPlan)
BEGIN_EXPORT = Call("backup_begin", BeginRequest, Serving)
# a public function of the host, for operators, too
END_EXPORT = Call("backup_end", EndExportRequest, ServingEnd)
PULL_BACKUP = Call("backup_pull", PullRequest, BackupResult)
SHOW_BACKUP = Call("backup_show", ShowBackupRequest, ShownBackup)
HIDE_BACKUP = Call("backup_hide", HideBackupRequest, bool)
RESTORE_GUEST = Call("backup_restore", RestoreGuestRequest, CreatedGuest)
RESTORE_DISK = Call("backup_disk", RestoreDiskRequest, RestoredDisk)
CHECK_IN_PLACE = Call("backup_over", InPlaceCheckRequest, InPlaceCheck)
SET_SCHEDULE: Call[ScheduleRequest, str | None] = Call(
    "backup_wish", ScheduleRequest, cast(Any, str | None), Timeout.SHORT
)
