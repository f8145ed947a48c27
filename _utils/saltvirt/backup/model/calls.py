"""The calls of backups that the master makes to hypervisors and to the machines of targets."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.answers.calls import Call
from saltvirt.backup.model.answers import ShownBackup
from saltvirt.backup.model.pins import LiveRestoreStatus, PinnedBackup
from saltvirt.schema import Message


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
