"""A guest that runs: its disks as they are at one moment, shown by its own QEMU, while it goes on:
libvirt's backup in pull mode."""

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
from saltvirt.backup.model.answers import GuestInspection, PlannedDisk, ServedDisk
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.storage import mount_guard
from saltvirt.xml.domain.backup import Checkpoint, CheckpointDisk, DomainBackup, DomainBackupDisk
from saltvirt.xml.domain.domain import Domain

_BITMAP = "changed"
_OLD = "it is qcow2 of version 2: while the guest is off, qemu-img amend -o compat=1.1 its file"
_QEMU_FOLDERS = "/var/lib/libvirt/qemu"
# characters of a guest's name in that of its folder: libvirt, virDomainDefGetShortName
_SHORT_NAME = 20
_AGENT_S = 10
# an agent that is at work on a freeze hears nothing: so long it is told again to thaw
_THAWS_S, _THAWS_AGAIN_S = 30, 1
# libvirt's errors for one that may have begun to; not each binding has all of them
_LATE = ("VIR_ERR_AGENT_UNRESPONSIVE", "VIR_ERR_AGENT_UNSYNCED", "VIR_ERR_AGENT_COMMAND_TIMEOUT",
         "VIR_ERR_OPERATION_TIMEOUT")  # fmt: skip
_ENDS_S = 60
_EARLY = "the guest had thawed its file systems before the backup had begun"
_AGENT_CHANNEL = "org.qemu.guest_agent.0"


@dataclass(frozen=True)
class FreezeResult:
    """is_so: the file systems are. note: why not. is_left: they may be all the same."""

    is_frozen: bool
    note: str | None = None
    may_be_frozen: bool = False


def match_plan(inspection: GuestInspection, request: ServeRequest) -> list[PlannedDisk]:
    """How each disk is to be taken. Raises OperationFailed where the disks are others than those of
    the plan."""
    planned = {disk.target: disk for disk in request.disks}
    if set(planned) != {disk.target for disk in inspection.disks}:
        raise errors.OperationFailed(f"the disks of {request.guest} changed meanwhile: begin again")
    return [planned[disk.target] for disk in inspection.disks]


def begin(
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    note: Callable[[bool], None],
) -> tuple[list[ServedDisk], str, str | None, str]:
    """(what is served, the consistency, why it is no better, the moment of the disks). note: called
    before file systems are frozen, and afterwards with whether they may still be.

    Raises OperationFailed, and then nothing is served.
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
                if thawed_count == 0:  # as Windows does by itself after ten seconds
                    frozen = FreezeResult(False, _EARLY)
    finally:
        note(may_be_frozen)
    consistency = record.FROZEN if frozen.is_frozen else record.CRASH
    warning = f"its file systems may still be frozen: virsh domfsthaw {request.guest}"
    text = "; ".join(filter(None, [frozen.note, warning if may_be_frozen else None]))
    return (
        [_describe_export(inspection, request, disk_plan) for disk_plan in plan],
        consistency,
        text or None,
        taken_at,
    )


def _begin(
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    plan: list[PlannedDisk],
) -> list[PlannedDisk]:
    """Begins; the plan that it was begun by."""
    checkpoint = _checkpoint(inspection, request)
    try:
        dom.backupBegin(_backup(dom, inspection, request, plan), checkpoint, 0)
        return plan
    except libvirt.libvirtError as exc:
        lost = exc.get_error_code() == libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT
        if not lost or all(disk_plan.since is None for disk_plan in plan):
            raise translate(exc, f"begin a backup of {request.guest}") from exc
        reason = f"libvirt says: {exc.get_error_message()}"
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
            mode="incremental" if disk_plan.since else "full", since=disk_plan.since,
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
    """Of all disks whose files keep a bitmap; None where none does."""
    recording = {item.target for item in inspection.disks if item.supports_bitmaps}
    if not recording:
        return None
    every = [*(item.target for item in inspection.disks), *inspection.skipped]
    disks = [
        CheckpointDisk(name=item, checkpoint="bitmap" if item in recording else "no")
        for item in every
    ]
    return Checkpoint(name=chains.checkpoint(request.ident), disks=disks).tostring()


def _describe_export(
    inspection: GuestInspection, request: ServeRequest, plan: PlannedDisk
) -> ServedDisk:
    disk = next(candidate for candidate in inspection.disks if candidate.target == plan.target)
    return ServedDisk(
        target=disk.target,
        size_bytes=disk.size_bytes,
        source=disk.source,
        export=disk.target,
        contexts=(f"qemu:dirty-bitmap:{_BITMAP}",) if plan.since else (),
        parent=plan.parent,
        reason=_OLD if disk.old else plan.reason,
        checkpoint=chains.checkpoint(request.ident) if disk.supports_bitmaps else None,
    )


def exports_path(dom: libvirt.virDomain) -> str:
    """Where QEMU shows the disks of a guest that runs: in the folder that libvirt has for this
    guest's QEMU, which alone it may write to everywhere. Raises OperationFailed."""
    # by its number alone it may be another's: a power cut leaves folders, and numbers come again
    folder = os.path.join(_QEMU_FOLDERS, f"domain-{dom.ID()}-{dom.name()[:_SHORT_NAME]}")
    if not os.path.isdir(folder):
        raise errors.OperationFailed(f"{dom.name()} has no folder below {_QEMU_FOLDERS}")
    return os.path.join(folder, "salt-virt.nbd")


def scratch_folder(request: ServeRequest) -> str:
    """The folder of what the guest overwrites meanwhile. Its name has the host: hosts may share the
    file system, and one removes what a dead backup of its own has left while another has the guest
    and backs it up."""
    return os.path.join(request.scratch, f"{request.guest}@{request.host}")


def make_scratch(path: str) -> None:
    """QEMU must get into it; what is in it is for QEMU alone."""
    mount_guard.make_folder(os.path.dirname(path), 0o711)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o711)


def is_served(dom: libvirt.virDomain, session: BackupSession) -> bool:
    """Whether the guest's QEMU still serves what was begun."""
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
    """Nothing is served any more. Raises OperationFailed where libvirt does not end it."""
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
    """File systems that may be frozen are not any more: how many were until now, None if that is
    not known. The agent may be gone by now; so long it is told again."""
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
    """Whether the guest was paused by an error of a disk, as where there is no room."""
    state: list[int] = dom.state()
    return state == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]


def _has_agent(dom: libvirt.virDomain) -> bool:
    tree = Domain.fromstring(dom.XMLDesc(0)).need()
    return any(
        (channel.get("name"), channel.get("state")) == (_AGENT_CHANNEL, "connected")
        for channel in tree.iterfind("devices/channel/target")
    )
