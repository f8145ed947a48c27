"""Checkpoints for incremental backups, in combination with snapshots.

QEMU cannot revert to a snapshot while a disk's file has a bitmap, and crashes if asked to; the
bitmap would also no longer match the data. libvirt does not create or redefine a snapshot of a
stopped guest with checkpoints, although this does not touch them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saltvirt import errors, names
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import checkpoints
from saltvirt.host.storage import files
from saltvirt.images import bitmaps


@contextlib.contextmanager
def hidden_checkpoints(domain: libvirt.virDomain) -> Iterator[None]:
    """Hide the checkpoints of a stopped guest from libvirt within the block.

    If the process dies in the block, the next backup is a full one.
    """
    if domain.isActive():
        yield
        return
    checkpoint_xmls = checkpoints.texts(domain)
    try:
        checkpoints.forget(domain)
        yield
    finally:
        rejected = checkpoints.redefine(domain, checkpoint_xmls)
    for name, reason in rejected.items():
        raise errors.OperationFailed(
            f"the snapshot exists, but libvirt did not restore the checkpoint {name} of "
            f"{domain.name()} ({reason}): its next backup is a full backup"
        )


def remove(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Remove the checkpoints of backups, and their bitmaps; the next backup is a full one.

    Raises InvalidInput if others have checkpoints, or if one cannot be removed while the guest
    runs.
    """
    refuse_foreign(domain)
    for checkpoint in checkpoints.list_all(domain):
        checkpoints.delete(domain, checkpoint)  # remaining bitmaps are handled below
    for path in _disks(conn, domain):
        for name in bitmaps.read(path):
            if domain.isActive() or not _is_own(name):
                hint = ": stop it first" if _is_own(name) else ""
                raise errors.InvalidInput(
                    f"cannot revert {domain.name()}: {path} has the bitmap {name}{hint}"
                )
            bitmaps.remove(path, name)


def refuse_foreign(domain: libvirt.virDomain) -> None:
    """Raise InvalidInput if the guest has checkpoints that are not from our backups."""
    checkpoint_names = (checkpoint.getName() for checkpoint in checkpoints.list_all(domain))
    foreign = [name for name in checkpoint_names if not _is_own(name)]
    if foreign:
        raise errors.InvalidInput(
            f"cannot revert {domain.name()}: it has checkpoints of another program: "
            f"{', '.join(foreign)}; delete them first"
        )


def forget(domain: libvirt.virDomain) -> None:
    """Remove our checkpoints from libvirt; the next backup is a full one.

    The guest is stopped, and the files with the bitmaps are recreated or are below one that is.
    """
    checkpoints.forget(domain)


def _is_own(name: str) -> bool:
    return name.startswith(names.CHECKPOINT)


def _disks(conn: libvirt.virConnect, domain: libvirt.virDomain) -> list[str]:
    """Return the qcow2 files of the guest's disks."""
    paths = []
    for disk in files.trees(domain)[0].iterfind("devices/disk"):
        if disk.get("device", "disk") == "disk" and files.format_of(disk) == bitmaps.QCOW2:
            paths += [path for path, _ in files.named_paths(conn, disk)][
                :1
            ]  # followed by its backing files
    return paths
