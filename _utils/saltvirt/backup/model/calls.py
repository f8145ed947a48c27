"""The calls of backups that the master makes to hypervisors and to the machines of targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.created import CreatedGuest
from saltvirt.answers.guest_calls import PurgePlanRequest
from saltvirt.answers.removal import RemovalPlan
from saltvirt.backup.model import backup_ids
from saltvirt.backup.model.answers import (
    BackupPlan,
    BackupReader,
    BackupResult,
    GuestInspection,
    InPlaceCheck,
    ListedBackup,
    PlannedDisk,
    RestoredDisk,
    Serving,
    ServingEnd,
    ShownBackup,
    UndoResult,
)
from saltvirt.backup.model.chains import CHAIN
from saltvirt.backup.model.files import ExtractedFile, FileListing
from saltvirt.backup.model.pins import BackupPin, LiveRestoreStatus, PinnedBackup
from saltvirt.backup.model.retention import Retention
from saltvirt.backup.model.upkeep_answers import PruneResult, VerifyReport
from saltvirt.placement.account import PlacementTerms
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class TargetRef(Message):
    """The folder of a target on its machine. mounted: it must be a mount point."""

    folder: str
    mounted: bool = field(default=False, kw_only=True)


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
class PlanRequest(TargetRef):
    """Plan the next backup of a guest from the existing backups of a target.

    host: the hypervisor of the guest. inspection: how its disks are. full: read all disks
    completely. chain: maximum length of a chain. key: name of the encryption key. reader: issue a
    certificate for the reading, too.
    """

    host: str
    inspection: GuestInspection
    full: bool = False
    chain: int = CHAIN
    key: str | None = None
    reader: bool = False


@dataclass(frozen=True)
class BeginRequest(Message):
    """Export the disks of a guest to the one machine that reads them.

    backup_id: name of the backup. reader: authority of the only certificate that is admitted.
    """

    name: str
    backup_id: str
    disks: tuple[PlannedDisk, ...]
    reader: str


@dataclass(frozen=True)
class EndExportRequest(Message):
    """End the export of a guest's disks.

    backup_id: name of the backup. good: the backup is complete. needed: checkpoints to keep then.
    """

    name: str
    backup_id: str
    good: bool = False
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullRequest(TargetRef):
    """Read the disks that a hypervisor exports, and store them as a backup.

    serving: the export. requester: the user who requested the backup. bandwidth: limit in MiB/s.
    reader: the one-time authority that the target's machine issued; None: its permanent one.
    """

    name: str
    backup_id: str
    host: str
    serving: Serving
    requester: str = "root"
    bandwidth: int | None = None
    key: str | None = None
    reader: str | None = None
    compress: str | None = None


@dataclass(frozen=True)
class ShowBackupRequest(TargetRef):
    """Export a backup to the one hypervisor that restores it.

    uuid: of the guest. backup: name or number, or ``latest``. reader: authority of the only
    certificate that is admitted. pin: the guest that runs from the backup; it keeps the backup
    from being removed. disk: only this disk. damaged: also a backup that is not good.
    """

    uuid: str
    backup: str
    reader: str
    pin: BackupPin | None = optional(None)
    disk: str | None = optional(None)
    damaged: bool = optional(False)


@dataclass(frozen=True)
class HideBackupRequest(Message):
    """End all exports of backups to a reader."""

    reader: str


@dataclass(frozen=True)
class RestoreGuestRequest(Message):
    """Create a guest from an exported backup.

    itself: restore the original guest, which does not exist any more. in_place: replace the
    existing guest; stop: power it off for that; disk: replace this disk only. instant: start the
    guest at once and copy its blocks meanwhile, at most bandwidth MiB/s. reader: the one-time
    authority that the hypervisor issued; None: its permanent one. seed: give the system in a second
    guest an identity; None: if the original was seeded. overcommit: also if the host lacks
    capacity. placement: the master's policy.
    """

    name: str
    shown: ShownBackup
    itself: bool = False
    in_place: bool = optional(False)
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
    setting: str
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
class UnpinRequest(TargetRef):
    """Release a backup from which a guest no longer runs.

    uuid: the UUID of the guest that was backed up. guest, host: the guest that ran from the backup,
    and its hypervisor.
    """

    uuid: str
    backup: str
    guest: str
    host: str


@dataclass(frozen=True)
class ListRequest(TargetRef):
    """The backups at a target: all, or those of one guest by its UUID and name.

    newest: only the last backup of each guest, and its last good one. after: ``UUID/BACKUP`` of the
    last backup of the previous page.
    """

    uuid: str | None = optional(None)
    name: str | None = optional(None)
    newest: bool = optional(False)
    after: str | None = optional(None)


@dataclass(frozen=True)
class ListFilesRequest(TargetRef):
    """List a folder of a guest from a backup.

    name: name or UUID of the guest. path: in the guest. backup: name or number, or ``latest``.
    filesystem: read only this file system; None: all that the guest's system mounts.
    """

    name: str
    path: str
    backup: str = backup_ids.LATEST
    filesystem: str | None = None


@dataclass(frozen=True)
class GetFileRequest(ListFilesRequest):
    """Copy a file of a guest from a backup to a file of the target's machine.

    dest: path of the file; None: a new path. max_size: with its unit. test: only check
    whether the file exists.
    """

    dest: str | None = None
    max_size: str = "1GiB"
    test: bool = False


@dataclass(frozen=True)
class PruneRequest(TargetRef):
    """Remove the backups that no retention rule keeps. name: of one guest. test: change nothing."""

    retention: Retention
    name: str | None = None
    test: bool = False


@dataclass(frozen=True)
class VerifyRequest(TargetRef):
    """Verify backups.

    name: of one guest. backup: ``all``, ``latest``, or a name or number. days: only backups that
    were not verified within this number of days. limit: maximum number of backups.
    """

    name: str | None = None
    backup: str = "all"
    days: float | None = None
    limit: int | None = optional(None)


@dataclass(frozen=True)
class ConfirmRequest(Message):
    """Delete the disks of a guest that a backup replaced. unused: paths on shared storage that no
    other host uses."""

    vm_: str
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class UndoRequest(Message):
    """Bring a guest back that a backup replaced. stop: power it off first. test: only raise the
    reason against it."""

    name: str
    stop: bool = False
    test: bool = optional(False)


PLAN_COMMIT = Call("backup_confirm", PurgePlanRequest, RemovalPlan, Timeout.SHORT)
LIVE_RESTORE_STATUS = Call("backup_standing", LiveRestoreRequest, LiveRestoreStatus)
RESUME_LIVE_RESTORE = Call("backup_again", ResumeRequest, LiveRestoreStatus)
LIST_PINS = Call("backup_stands", TargetRef, list[PinnedBackup])
UNPIN = Call("backup_let_go", UnpinRequest, bool)

ISSUE_READER = Call("backup_reader", ReaderRequest, BackupReader)
INSPECT_GUEST = Call("backup_look", InspectRequest, GuestInspection)
PLAN_BACKUP = Call("backup_plan", PlanRequest, BackupPlan)
BEGIN_EXPORT = Call("backup_begin", BeginRequest, Serving)
PULL_BACKUP = Call("backup_pull", PullRequest, BackupResult)
SHOW_BACKUP = Call("backup_show", ShowBackupRequest, ShownBackup)
HIDE_BACKUP = Call("backup_hide", HideBackupRequest, bool)
RESTORE_GUEST = Call("backup_restore", RestoreGuestRequest, CreatedGuest)
RESTORE_DISK = Call("backup_disk", RestoreDiskRequest, RestoredDisk)
CHECK_IN_PLACE = Call("backup_over", InPlaceCheckRequest, InPlaceCheck)
SET_SCHEDULE: Call[ScheduleRequest, str | None] = Call(
    "backup_wish", ScheduleRequest, cast(Any, str | None), Timeout.SHORT
)

# public functions of the host, for operators, too
END_EXPORT = Call("backup_end", EndExportRequest, ServingEnd)
LIST_BACKUPS = Call("backup_list", ListRequest, list[ListedBackup], Timeout.SHORT)
LIST_FILES = Call("backup_ls", ListFilesRequest, FileListing)
GET_FILE = Call("backup_get", GetFileRequest, ExtractedFile)
PRUNE = Call("backup_prune", PruneRequest, PruneResult)
VERIFY = Call("backup_verify", VerifyRequest, VerifyReport)
CONFIRM_RESTORE = Call("backup_confirm", ConfirmRequest, RemovalPlan)
UNDO_RESTORE = Call("backup_undo", UndoRequest, UndoResult)
