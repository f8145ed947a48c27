"""The checkpoints that our backups made, and their bitmaps in the guest's disks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from saltvirt.backups import chains
from saltvirt.backupserve import look
from saltvirt.host.connection import libvirt
from saltvirt.images import confined
from saltvirt.xml.backup import Checkpoint
from saltvirt.xml.domain import Domain

_PATIENCE_S = 60


def sweep(conn: libvirt.virConnect, dom: libvirt.virDomain, needed: Collection[str]) -> list[str]:
    """Takes those of ours away that are not needed; why one is still there, of each that is."""
    left = []
    for checkpoint in dom.listAllCheckpoints(0):
        name = checkpoint.getName()
        if name.startswith(chains.PREFIX) and name not in needed:
            try:
                remove(conn, dom, checkpoint)
            except libvirt.libvirtError as exc:
                left.append(f"checkpoint {name}: {exc.get_error_message()}")
    return left


def remove(
    conn: libvirt.virConnect, dom: libvirt.virDomain, checkpoint: libvirt.virDomainCheckpoint
) -> None:
    """Takes a checkpoint away. libvirt removes none whose bitmap is lost or broken, and none of a
    guest that is off: then the bitmaps are removed from the files, or go when they next can."""
    if dom.isActive():
        with contextlib.suppress(libvirt.libvirtError):
            checkpoint.delete(0)
            return
        checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
        return
    text = checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN)
    of = {one.name: one.bitmap or checkpoint.getName() for one in Checkpoint.fromstring(text).disks
          if one.checkpoint == "bitmap"}  # fmt: skip
    checkpoint.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
    for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
        if disk.target in of and disk.driver_type == "qcow2":
            where = look.path(conn, disk)
            argv = ["qemu-img", "bitmap", "--remove", "-f", "qcow2", where, of[disk.target]]
            limits = confined.Limits(_PATIENCE_S)
            # one that is not in it is what is wanted
            confined.run(argv, f"remove a bitmap of {where}", writes=[where], limits=limits,
                         good=(0, 1))  # fmt: skip
