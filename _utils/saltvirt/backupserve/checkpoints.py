"""The checkpoints that our backups made, and their bitmaps in the guest's disks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection

from saltvirt import errors
from saltvirt.backups import chains, record
from saltvirt.backups.answers import GuestLook, LookedDisk
from saltvirt.backupserve import look
from saltvirt.host.connection import libvirt
from saltvirt.images import confined
from saltvirt.xml.backup import Checkpoint, CheckpointDisk
from saltvirt.xml.domain import Domain

_PATIENCE_S = 60


def make(
    conn: libvirt.virConnect, dom: libvirt.virDomain, seen: GuestLook, ident: str
) -> dict[str, str]:
    """Disk to the checkpoint that was made of it while the guest is off: of each whose file can
    keep a bitmap and has none of ours that records. From it the next increment can be had."""
    name, paths = chains.checkpoint(ident), {}
    for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
        of = next((one for one in seen.disks if one.target == disk.target), None)
        if of and of.format == record.QCOW2 and recording(of) is None:
            paths[of.target] = look.path(conn, disk)
    done: list[str] = []
    try:
        for where in paths.values():
            _bitmap("--add", name, where)
            done.append(where)
        if paths:
            disks = [CheckpointDisk(name=one, checkpoint="bitmap", bitmap=name) for one in paths]
            now = int(time.time())
            told = Checkpoint(name=name, creation_time_s=now, disks=disks).tostring()
            dom.checkpointCreateXML(told, libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE)
    except (libvirt.libvirtError, errors.OperationFailed):
        # the disks are read all the same; the next time they are read whole
        for where in done:
            _bitmap("--remove", name, where)
        return {}
    return dict.fromkeys(paths, name)


def recording(disk: LookedDisk) -> str | None:
    """A checkpoint of ours whose bitmap in the disk's file records: what it says has changed is
    too much at most."""
    good = [
        name
        for name, state in disk.bitmaps.items()
        if name.startswith(chains.PREFIX) and state == chains.GOOD
    ]
    return max(good, default=None)


def _bitmap(what: str, name: str, where: str) -> None:
    """Adds a bitmap to a file, or removes one."""
    argv = ["qemu-img", "bitmap", what, "-f", "qcow2", where, name]
    limits = confined.Limits(_PATIENCE_S)
    confined.run(argv, f"change bitmaps of {where}", writes=[where], limits=limits)


def sweep(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Takes those of ours away that are not needed; why one is still there, of each that is.

    Of a guest that runs libvirt removes none whose bitmap is lost or broken: that bitmap goes from
    the disk's file with the next backup of the guest while it is off.
    """
    left = []
    for checkpoint in dom.listAllCheckpoints(0):
        name = checkpoint.getName()
        if name.startswith(chains.PREFIX) and name not in needed:
            try:
                _forget(dom, checkpoint)
            except libvirt.libvirtError as exc:
                left.append(f"checkpoint {name}: {exc.get_error_message()}")
    if not dom.isActive():
        left += _files(conn, dom, needed)
    return left


def _forget(dom: libvirt.virDomain, checkpoint: libvirt.virDomainCheckpoint) -> None:
    if dom.isActive():
        with contextlib.suppress(libvirt.libvirtError):
            checkpoint.delete(0)
            return
    checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def _files(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Takes bitmaps of ours out of the files of a guest that is off."""
    left = []
    bitmaps = {one.target: one.bitmaps for one in look.look(conn, dom.name()).disks}
    for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
        for name in bitmaps.get(disk.target or "", ()):
            if name.startswith(chains.PREFIX) and name not in needed:
                try:
                    _bitmap("--remove", name, look.path(conn, disk))
                except errors.VirtError as exc:
                    left.append(f"bitmap {name} of {disk.target}: {exc.text}")
    return left
