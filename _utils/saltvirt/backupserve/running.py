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
from saltvirt.backups import chains, record
from saltvirt.backups.answers import GuestLook, PlannedDisk, ServedDisk
from saltvirt.backupserve.request import Begun, ServeRequest
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.storage import mounted
from saltvirt.xml.backup import Backup, BackupDisk, Checkpoint, CheckpointDisk
from saltvirt.xml.domain import Domain

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
class Frozen:
    """is_so: the file systems are. note: why not. is_left: they may be all the same."""

    is_so: bool
    note: str | None = None
    is_left: bool = False


def plan_of(look: GuestLook, request: ServeRequest) -> list[PlannedDisk]:
    """How each disk is to be taken. Raises OperationFailed where the disks are others than those of
    the plan."""
    planned = {one.target: one for one in request.disks}
    if set(planned) != {one.target for one in look.disks}:
        raise errors.OperationFailed(f"the disks of {request.guest} changed meanwhile: begin again")
    return [planned[one.target] for one in look.disks]


def begin(
    dom: libvirt.virDomain,
    look: GuestLook,
    request: ServeRequest,
    note: Callable[[bool], None],
) -> tuple[list[ServedDisk], str, str | None, str]:
    """(what is served, the consistency, why it is no better, the moment of the disks). note: called
    before file systems are frozen, and afterwards with whether they may still be.

    Raises OperationFailed, and then nothing is served.
    """
    plan = plan_of(look, request)
    note(True)
    is_left = True
    try:
        frozen = _freeze(dom)
        is_left = frozen.is_left
        try:
            plan = _begin(dom, look, request, plan)
            when = record.written_at(time.time())
        finally:
            if frozen.is_so:
                thawed = thaw(dom, _THAWS_S)
                is_left = thawed is None
                if thawed == 0:  # as Windows does by itself after ten seconds
                    frozen = Frozen(False, _EARLY)
    finally:
        note(is_left)
    consistency = record.FROZEN if frozen.is_so else record.CRASH
    left = f"its file systems may still be frozen: virsh domfsthaw {request.guest}"
    words = "; ".join(filter(None, [frozen.note, left if is_left else None]))
    return [_served(look, request, one) for one in plan], consistency, words or None, when


def _begin(
    dom: libvirt.virDomain,
    look: GuestLook,
    request: ServeRequest,
    plan: list[PlannedDisk],
) -> list[PlannedDisk]:
    """Begins; the plan that it was begun by."""
    checkpoint = _checkpoint(look, request)
    try:
        dom.backupBegin(_backup(dom, look, request, plan), checkpoint, 0)
        return plan
    except libvirt.libvirtError as exc:
        lost = exc.get_error_code() == libvirt.VIR_ERR_CHECKPOINT_INCONSISTENT
        if not lost or all(one.since is None for one in plan):
            raise translate(exc, f"begin a backup of {request.guest}") from exc
        why = f"libvirt says: {exc.get_error_message()}"
    whole = [replace(one, parent=None, since=None, reason=one.reason or why) for one in plan]
    try:
        dom.backupBegin(_backup(dom, look, request, whole), checkpoint, 0)
    except libvirt.libvirtError as exc:
        raise translate(exc, f"begin a backup of {request.guest}") from exc
    return whole


def _backup(
    dom: libvirt.virDomain, look: GuestLook, request: ServeRequest, plan: list[PlannedDisk]
) -> str:
    disks = [
        BackupDisk(
            name=one.target, backup=True, type="file", driver_type="qcow2", export=one.target,
            mode="incremental" if one.since else "full", since=one.since,
            bitmap=_BITMAP if one.since else None,
            scratch_file=os.path.join(scratch(request), f"{one.target}.qcow2"),
        )
        for one in plan
    ]  # fmt: skip
    disks += [BackupDisk(name=target, backup=False) for target in look.skipped]
    return Backup(mode="pull", transport="unix", socket=exports_of(dom), disks=disks).tostring()


def _checkpoint(look: GuestLook, request: ServeRequest) -> str | None:
    """Of all disks whose files keep a bitmap; None where none does."""
    recording = {one.target for one in look.disks if one.records}
    if not recording:
        return None
    every = [*(one.target for one in look.disks), *look.skipped]
    disks = [
        CheckpointDisk(name=one, checkpoint="bitmap" if one in recording else "no") for one in every
    ]
    return Checkpoint(name=chains.checkpoint(request.ident), disks=disks).tostring()


def _served(look: GuestLook, request: ServeRequest, plan: PlannedDisk) -> ServedDisk:
    disk = next(one for one in look.disks if one.target == plan.target)
    return ServedDisk(
        target=disk.target,
        size_bytes=disk.size_bytes,
        source=disk.source,
        export=disk.target,
        contexts=(f"qemu:dirty-bitmap:{_BITMAP}",) if plan.since else (),
        parent=plan.parent,
        reason=_OLD if disk.old else plan.reason,
        checkpoint=chains.checkpoint(request.ident) if disk.records else None,
    )


def exports_of(dom: libvirt.virDomain) -> str:
    """Where QEMU shows the disks of a guest that runs: in the folder that libvirt has for this
    guest's QEMU, which alone it may write to everywhere. Raises OperationFailed."""
    # by its number alone it may be another's: a power cut leaves folders, and numbers come again
    found = os.path.join(_QEMU_FOLDERS, f"domain-{dom.ID()}-{dom.name()[:_SHORT_NAME]}")
    if not os.path.isdir(found):
        raise errors.OperationFailed(f"{dom.name()} has no folder below {_QEMU_FOLDERS}")
    return os.path.join(found, "salt-virt.nbd")


def scratch(request: ServeRequest) -> str:
    """The folder of what the guest overwrites meanwhile. Its name has the host: hosts may share the
    file system, and one removes what a dead backup of its own has left while another has the guest
    and backs it up."""
    return os.path.join(request.scratch, f"{request.guest}@{request.host}")


def make_scratch(path: str) -> None:
    """QEMU must get into it; what is in it is for QEMU alone."""
    mounted.make_folder(os.path.dirname(path), 0o711)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o711)


def is_served(dom: libvirt.virDomain, begun: Begun) -> bool:
    """Whether the guest's QEMU still serves what was begun."""
    try:
        found = Backup.fromstring(dom.backupGetXMLDesc(0))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_BACKUP:
            return False
        if not dom.isActive():
            return False
        raise
    return any((one.scratch_file or "").startswith(f"{begun.scratch}/") for one in found.disks)


def end(dom: libvirt.virDomain, begun: Begun) -> None:
    """Nothing is served any more. Raises OperationFailed where libvirt does not end it."""
    deadline = time.monotonic() + _ENDS_S
    asked = False
    while is_served(dom, begun):
        if not asked:
            with contextlib.suppress(libvirt.libvirtError):  # it ended meanwhile
                dom.abortJob()
                asked = True
        if time.monotonic() > deadline:
            raise errors.OperationFailed(f"libvirt does not end the backup of {begun.guest}")
        time.sleep(0.1)


def _freeze(dom: libvirt.virDomain) -> Frozen:
    if not _has_agent(dom):
        return Frozen(False, "no guest agent answers")
    try:
        dom.agentSetResponseTimeout(_AGENT_S, 0)
        count = dom.fsFreeze()
    except libvirt.libvirtError as exc:
        is_late = exc.get_error_code() in {getattr(libvirt, one, None) for one in _LATE}
        is_left = thaw(dom, _THAWS_S if is_late else 0) is None and is_late
        return Frozen(False, f"the guest agent did not freeze: {exc.get_error_message()}", is_left)
    return Frozen(True) if count else Frozen(False, "the guest agent has no file system to freeze")


def thaw(dom: libvirt.virDomain, wait_s: float = 0) -> int | None:
    """File systems that may be frozen are not any more: how many were until now, None if that is
    not known. The agent may be gone by now; so long it is told again."""
    until = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(libvirt.libvirtError):
            return int(dom.fsThaw())
        with contextlib.suppress(libvirt.libvirtError):
            if not dom.isActive():
                return 0
        if time.monotonic() >= until:
            return None
        time.sleep(_THAWS_AGAIN_S)


def is_paused_by_io(dom: libvirt.virDomain) -> bool:
    """Whether the guest was paused by an error of a disk, as where there is no room."""
    found: list[int] = dom.state()
    return found == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]


def _has_agent(dom: libvirt.virDomain) -> bool:
    tree = Domain.fromstring(dom.XMLDesc(0)).need()
    return any(
        (one.get("name"), one.get("state")) == (_AGENT_CHANNEL, "connected")
        for one in tree.iterfind("devices/channel/target")
    )
