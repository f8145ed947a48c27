"""A guest's checkpoints, from which backups take increments, and its snapshots.

QEMU goes back to no snapshot while a disk's file has a bitmap, and ends when it is asked to; and
what the disks hold then no bitmap tells of. libvirt neither takes a snapshot of a guest that is off
and has checkpoints nor changes what it recorded of one, though nothing of them is touched.
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
    """For the block, which makes or describes a snapshot, libvirt does not know the checkpoints of
    a guest that is off. Where this dies in it the next backup is a whole one."""
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
            f"the snapshot is there, but libvirt does not take the checkpoint {name} of "
            f"{domain.name()} back ({reason}): its next backup is a whole one"
        )


def remove(conn: libvirt.virConnect, domain: libvirt.virDomain) -> None:
    """Takes away those that backups made, and their bitmaps: the next backup is a whole one.

    Raises InvalidInput while something else has one, or where one cannot be taken away while the
    guest runs.
    """
    refuse_foreign(domain)
    for checkpoint in checkpoints.list_all(domain):
        checkpoints.delete(domain, checkpoint)  # a bitmap that stays is looked for below
    for path in _disks(conn, domain):
        for name in bitmaps.read(path):
            if domain.isActive() or not _is_own(name):
                hint = ": stop it first" if _is_own(name) else ""
                raise errors.InvalidInput(
                    f"{path} has the bitmap {name}, with which {domain.name()} goes back to no "
                    f"snapshot{hint}"
                )
            bitmaps.remove(path, name)


def refuse_foreign(domain: libvirt.virDomain) -> None:
    """Raises InvalidInput while something else than our backups has a checkpoint of the guest."""
    checkpoint_names = (checkpoint.getName() for checkpoint in checkpoints.list_all(domain))
    foreign = [name for name in checkpoint_names if not _is_own(name)]
    if foreign:
        raise errors.InvalidInput(
            f"{domain.name()} has checkpoints of others, and goes back to no snapshot before they "
            f"are deleted: {', '.join(foreign)}"
        )


def forget(domain: libvirt.virDomain) -> None:
    """libvirt knows those of our backups no more: the next backup is a whole one. The guest is off,
    and the files in which their bitmaps are begin anew, or are below one that does."""
    checkpoints.forget(domain)


def _is_own(name: str) -> bool:
    return name.startswith(names.CHECKPOINT)


def _disks(conn: libvirt.virConnect, domain: libvirt.virDomain) -> list[str]:
    """The qcow2 files of its disks."""
    paths = []
    for disk in files.trees(domain)[0].iterfind("devices/disk"):
        if disk.get("device", "disk") == "disk" and files.format_of(disk) == bitmaps.QCOW2:
            paths += [path for path, _ in files.named_paths(conn, disk)][
                :1
            ]  # then what it stands on
    return paths
