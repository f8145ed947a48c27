"""Checkpoints made by backups, and their bitmaps in the guest's disks."""

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
    """Create a checkpoint while the guest is off; map each disk whose file can store a bitmap to
    it.

    Do not reuse an older bitmap: if an older copy of the file were put back, it would contain the
    same bitmap, and changes between the two would be missing in the next increment.
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
        # the disks are read nevertheless; the next backup will be a full one
        for path in done:
            bitmaps.remove(path, name)
        return {}
    return dict.fromkeys(paths, name)


def sweep(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Remove our checkpoints that are not needed; return the problems.

    libvirt cannot remove a checkpoint of a running guest if its bitmap is lost or broken. In this
    case the bitmap is removed by the next backup while the guest is off.
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
    """Remove our bitmaps from the files of a guest that is off."""
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
