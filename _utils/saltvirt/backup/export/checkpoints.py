"""The checkpoints that our backups made, and their bitmaps in the guest's disks."""

from __future__ import annotations

import time
from collections.abc import Collection

from saltvirt import errors
from saltvirt.backup.export import inspect_guest
from saltvirt.backup.model import chains
from saltvirt.backup.model.answers import GuestInspection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import checkpoints
from saltvirt.images import bitmaps
from saltvirt.xml.domain.backup import Checkpoint, CheckpointDisk
from saltvirt.xml.domain.domain import Domain


def make(
    conn: libvirt.virConnect, dom: libvirt.virDomain, inspection: GuestInspection, backup_id: str
) -> dict[str, str]:
    """Disk to the checkpoint that was made of it while the guest is off: of each whose file can
    keep a bitmap. From it the next increment can be had.

    An older bitmap would record as well, and an older copy of the file, put back, would have it,
    too: nobody could tell that what was written between the two is in a backup, and not there.
    """
    name, paths = chains.checkpoint(backup_id), {}
    eligible = {item.target for item in inspection.disks if item.supports_bitmaps}
    for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
        if disk.target in eligible:
            paths[str(disk.target)] = inspect_guest.source_path(conn, disk)
    done: list[str] = []
    try:
        for path in paths.values():
            bitmaps.add(path, name)
            done.append(path)
        if paths:
            disks = [CheckpointDisk(name=item, checkpoint="bitmap", bitmap=name) for item in paths]
            now = int(time.time())
            document = Checkpoint(name=name, creation_time_s=now, disks=disks).tostring()
            dom.checkpointCreateXML(document, libvirt.VIR_DOMAIN_CHECKPOINT_CREATE_REDEFINE)
    except (libvirt.libvirtError, errors.OperationFailed):
        # the disks are read all the same; the next time they are read whole
        for path in done:
            bitmaps.remove(path, name)
        return {}
    return dict.fromkeys(paths, name)


def sweep(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Takes those of ours away that are not needed; why one is still there, of each that is.

    Of a guest that runs libvirt removes none whose bitmap is lost or broken: that bitmap goes from
    the disk's file with the next backup of the guest while it is off.
    """
    leftovers = []
    for checkpoint in checkpoints.list_all(dom):
        name = checkpoint.getName()
        if name.startswith(chains.PREFIX) and name not in needed:
            try:
                checkpoints.delete(dom, checkpoint)
            except libvirt.libvirtError as exc:
                leftovers.append(f"checkpoint {name}: {exc.get_error_message()}")
    if not dom.isActive():
        leftovers += _files(conn, dom, needed)
    return leftovers


def _files(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Takes bitmaps of ours out of the files of a guest that is off."""
    leftovers = []
    bitmap_names = {
        inspected.target: inspected.bitmaps
        for inspected in inspect_guest.inspect(conn, dom.name()).disks
    }
    for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
        for name in bitmap_names.get(disk.target or "", ()):
            if name.startswith(chains.PREFIX) and name not in needed:
                try:
                    bitmaps.remove(inspect_guest.source_path(conn, disk), name)
                except errors.VirtError as exc:
                    leftovers.append(f"bitmap {name} of {disk.target}: {exc.text}")
    return leftovers
