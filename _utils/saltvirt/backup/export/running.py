"""Export the disks of a running guest through its own QEMU, as they are at one moment: libvirt's
backup in pull mode."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from saltvirt import errors
from saltvirt.backup.export.request import BackupSession, ServeRequest
from saltvirt.backup.model import chains, record
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk, PlannedDisk, ServedDisk
from saltvirt.host.connection import libvirt, translate
from saltvirt.system import mount_guard
from saltvirt.xml.domain.backup import Checkpoint, CheckpointDisk, DomainBackup, DomainBackupDisk
from saltvirt.xml.domain.domain import Domain

_BITMAP = "changed"
_OLD = (
    "the disk is a qcow2 of version 2: convert it with qemu-img amend -o compat=1.1 while the "
    "guest is off"
)
_QEMU_FOLDERS = "/var/lib/libvirt/qemu"
# length of the guest's name in its folder: libvirt, virDomainDefGetShortName
_SHORT_NAME = 20
_AGENT_S = 10
# a busy agent does not answer: repeat the request to thaw for this time
_THAWS_S, _THAWS_AGAIN_S = 30, 1
# errors after which the agent may still freeze; some bindings lack some of them
_LATE = ("VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED", "VIR_ERR_AGENT_COMMAND_TIMEOUT",
         "VIR_ERR_OPERATION_TIMEOUT")  # fmt: skip
_ENDS_S = 60
_EARLY = "the guest thawed its file systems before the backup had begun"
_AGENT_CHANNEL = "org.qemu.guest_agent.0"


@dataclass(frozen=True)
class FreezeResult:
    """Result of a freeze. note: why the file systems are not frozen. may_be_frozen: they may be
    frozen despite an error."""

    is_frozen: bool
    note: str | None = None
    may_be_frozen: bool = False


def match_plan(inspection: GuestInspection, request: ServeRequest) -> list[PlannedDisk]:
    """Return the planned disks in order. Raises OperationFailed if the guest's disks have
    changed."""
    planned = {disk.target: disk for disk in request.disks}
    if set(planned) != {disk.target for disk in inspection.disks}:
        raise errors.OperationFailed(
            f"the disks of {request.guest} changed meanwhile: repeat the command"
        )
    return [planned[disk.target] for disk in inspection.disks]


def begin(
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    note: Callable[[bool], None],
) -> tuple[list[ServedDisk], str, str | None, str]:
    """Start the export; return (disks, consistency, reason for the consistency, moment of the
    disks).

    note: called before file systems are frozen, and afterwards with whether they may still be
    frozen. Raises OperationFailed; in this case nothing is exported.
    """
    plan = match_plan(inspection, request)
    note(True)
    may_be_frozen = True
    try:
        frozen = _freeze(dom)
        may_be_frozen = frozen.may_be_frozen
        try:
            plan = _begin(dom, inspection, request, plan)
            taken_at = record.format_time(time.time())
        finally:
            if frozen.is_frozen:
                thawed_count = thaw(dom, _THAWS_S)
                may_be_frozen = thawed_count is None
                if thawed_count == 0:  # for example Windows, after ten seconds
                    frozen = FreezeResult(False, _EARLY)
    finally:
        note(may_be_frozen)
    consistency = record.FROZEN if frozen.is_frozen else record.CRASH
    warning = f"its file systems may still be frozen: virsh domfsthaw {request.guest}"
    text = "; ".join(filter(None, [frozen.note, warning if may_be_frozen else None]))
    name = chains.checkpoint(request.backup_id)
    served_disks = [
        describe_export(disk, disk_plan, _BITMAP, name if disk.supports_bitmaps else None)
        for disk, disk_plan in zip(inspection.disks, plan, strict=True)
    ]
    return served_disks, consistency, text or None, taken_at


def _begin(
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    plan: list[PlannedDisk],
) -> list[PlannedDisk]:
    """Start libvirt's job; return the plan, in which disks may have become full backups."""
    checkpoint = _checkpoint(inspection, request)
    try:
        dom.backupBegin(_backup(dom, inspection, request, plan), checkpoint, 0)
        return plan
    except libvirt.libvirtError as exc:
        lost = exc.get_error_code() == libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT
        if not lost or all(disk_plan.since is None for disk_plan in plan):
            raise translate(exc, f"begin a backup of {request.guest}") from exc
        reason = f"libvirt: {exc.get_error_message()}"
    full_plan = [
        replace(disk_plan, parent=None, since=None, reason=disk_plan.reason or reason)
        for disk_plan in plan
    ]
    try:
        dom.backupBegin(_backup(dom, inspection, request, full_plan), checkpoint, 0)
    except libvirt.libvirtError as exc:
        raise translate(exc, f"begin a backup of {request.guest}") from exc
    return full_plan


def _backup(
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    plan: list[PlannedDisk],
) -> str:
    disks = [
        DomainBackupDisk(
            name=disk_plan.target, backup=True, type="file", driver_type="qcow2",
            export=disk_plan.target,
            mode="incremental" if disk_plan.since else "full", incremental=disk_plan.since,
            bitmap=_BITMAP if disk_plan.since else None,
            scratch_file=os.path.join(scratch_folder(request), f"{disk_plan.target}.qcow2"),
        )
        for disk_plan in plan
    ]  # fmt: skip
    disks += [DomainBackupDisk(name=target, backup=False) for target in inspection.skipped]
    return DomainBackup(
        mode="pull", transport="unix", socket=exports_path(dom), disks=disks
    ).tostring()


def _checkpoint(inspection: GuestInspection, request: ServeRequest) -> str | None:
    """Return the checkpoint of all disks that can store bitmaps; None if there is none."""
    recording = {item.target for item in inspection.disks if item.supports_bitmaps}
    if not recording:
        return None
    every = [*(item.target for item in inspection.disks), *inspection.skipped]
    disks = [
        CheckpointDisk(name=item, checkpoint="bitmap" if item in recording else "no")
        for item in every
    ]
    return Checkpoint(name=chains.checkpoint(request.backup_id), disks=disks).tostring()


def describe_export(
    disk: InspectedDisk, plan: PlannedDisk, bitmap: str | None, checkpoint: str | None
) -> ServedDisk:
    """Return an exported disk. bitmap: of an increment. checkpoint: of the next one."""
    return ServedDisk(
        target=disk.target, size_bytes=disk.size_bytes, source=disk.source, export=disk.target,
        contexts=(f"qemu:dirty-bitmap:{bitmap}",) if plan.since else (), parent=plan.parent,
        reason=_OLD if disk.old else plan.reason, checkpoint=checkpoint,
    )  # fmt: skip


def exports_path(dom: libvirt.virDomain) -> str:
    """Return the path of QEMU's NBD socket, in the folder that libvirt creates for this QEMU: the
    only one to which it can write on all systems. Raises OperationFailed."""
    # the number alone is ambiguous: folders remain after a power failure, and numbers are reused
    folder = os.path.join(_QEMU_FOLDERS, f"domain-{dom.ID()}-{dom.name()[:_SHORT_NAME]}")
    if not os.path.isdir(folder):
        raise errors.OperationFailed(f"QEMU of {dom.name()} has no folder below {_QEMU_FOLDERS}")
    return os.path.join(folder, "salt-virt.nbd")


def scratch_folder(request: ServeRequest) -> str:
    """Return the folder for overwritten blocks. It contains the name of the host, because several
    hosts may use the file system, and each removes only its own remains."""
    return os.path.join(request.scratch, f"{request.guest}@{request.host}")


def make_scratch(path: str) -> None:
    """Create a folder that QEMU can enter."""
    mount_guard.make_folder(os.path.dirname(path), 0o711)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o711)


def is_served(dom: libvirt.virDomain, session: BackupSession) -> bool:
    """Whether the guest's QEMU still exports this backup."""
    try:
        backup = DomainBackup.fromstring(dom.backupGetXMLDesc(0))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_BACKUP:
            return False
        if not dom.isActive():
            return False
        raise
    return any((disk.scratch_file or "").startswith(f"{session.scratch}/") for disk in backup.disks)


def end(dom: libvirt.virDomain, session: BackupSession) -> None:
    """End the job. Raises OperationFailed if libvirt does not end it."""
    deadline = time.monotonic() + _ENDS_S
    is_aborted = False
    while is_served(dom, session):
        if not is_aborted:
            with contextlib.suppress(libvirt.libvirtError):  # it ended meanwhile
                dom.abortJob()
                is_aborted = True
        if time.monotonic() > deadline:
            raise errors.OperationFailed(f"libvirt does not end the backup of {session.guest}")
        time.sleep(0.1)


def _freeze(dom: libvirt.virDomain) -> FreezeResult:
    if not _has_agent(dom):
        return FreezeResult(False, "no guest agent answers")
    try:
        dom.agentSetResponseTimeout(_AGENT_S, 0)
        count = dom.fsFreeze()
    except libvirt.libvirtError as exc:
        is_late = exc.get_error_code() in {getattr(libvirt, name, None) for name in _LATE}
        may_be_frozen = thaw(dom, _THAWS_S if is_late else 0) is None and is_late
        return FreezeResult(
            False, f"the guest agent did not freeze: {exc.get_error_message()}", may_be_frozen
        )
    return (
        FreezeResult(True)
        if count
        else FreezeResult(False, "the guest agent has no file system to freeze")
    )


def thaw(dom: libvirt.virDomain, wait_s: float = 0) -> int | None:
    """Thaw file systems; return how many were frozen, or None if unknown. Repeat the request for
    wait_s, because the agent may not answer."""
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(libvirt.libvirtError):
            return int(dom.fsThaw())
        with contextlib.suppress(libvirt.libvirtError):
            if not dom.isActive():
                return 0
        if time.monotonic() >= deadline:
            return None
        time.sleep(_THAWS_AGAIN_S)


def is_paused_by_io(dom: libvirt.virDomain) -> bool:
    """Whether the guest is paused by a disk error, such as lack of space or an unreadable block."""
    state: list[int] = dom.state()
    return state == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]


def _has_agent(dom: libvirt.virDomain) -> bool:
    tree = Domain.fromstring(dom.XMLDesc(0)).need()
    return any(
        (channel.get("name"), channel.get("state")) == (_AGENT_CHANNEL, "connected")
        for channel in tree.iterfind("devices/channel/target")
    )
