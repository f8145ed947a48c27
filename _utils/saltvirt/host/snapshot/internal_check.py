"""Checks of internal snapshots before a revert changes a disk.

libvirt reverts the disks one after the other, and QEMU looks for a snapshot's name among the IDs
first.
"""

from __future__ import annotations

from collections.abc import Iterable

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.snapshot import reader
from saltvirt.host.storage import chains, files, usage
from saltvirt.images import qcow2_snapshots
from saltvirt.snapshot import rules
from saltvirt.snapshot.tree import INTERNAL, SnapshotNode


def refuse(conn: libvirt.virConnect, domain: libvirt.virDomain, target: SnapshotNode) -> None:
    """Raise Refused if the revert would change a detached disk, or if not every disk can be
    reverted."""
    if not connection.is_local(conn) or conn.getType() != reader.DRIVER:
        return
    disks = {disk.base: disk for disk in target.disks if disk.kind == INTERNAL and disk.base}
    files_of = {path: disk for path, disk in disks.items() if path.startswith("/")}
    for path, disk in files_of.items():
        _refuse_lost(conn, domain, target.name, disk.target, path)
    for path in files_of:
        _refuse_other(domain.name(), target.name, path)


def refuse_taken(
    conn: libvirt.virConnect, disks: Iterable[rules.WritableDisk], snapshot: str
) -> None:
    """Raise AlreadyExists if a disk's file contains a snapshot with this name.

    libvirt may not list it, but QEMU would revert to it.
    """
    if not connection.is_local(conn):
        return
    for disk in disks:
        path = disk.path
        if path and disk.regular and snapshot in qcow2_snapshots.snapshots(path).values():
            raise errors.AlreadyExists(
                f"{path} contains a snapshot {snapshot} that libvirt does not know: choose "
                "another name, or delete that snapshot while the guest is off: 'qemu-img "
                f"snapshot -d {snapshot} {path}'"
            )


def _refuse_lost(
    conn: libvirt.virConnect, domain: libvirt.virDomain, snapshot: str, target: str, base: str
) -> None:
    guest = domain.name()
    if _has_disk(conn, domain, base):
        return
    reason = f"which {guest} no longer has: attach it again"
    if not usage.is_there(conn, base):
        reason = "which no longer exists: restore it"
    raise errors.Refused(
        f"cannot revert {guest}: snapshot {snapshot} needs disk {target}, {base}, "
        f"{reason}, or forget the snapshot with 'virsh snapshot-delete {guest} "
        f"{snapshot} --metadata', which leaves all files unchanged"
    )


def _has_disk(conn: libvirt.virConnect, domain: libvirt.virDomain, base: str) -> bool:
    """Return whether an existing file is a disk of the guest or a backing file of one."""
    if not usage.is_there(conn, base):
        return False
    real = files.real(base)
    disks = [disk for root in files.trees(domain) for disk in root.iterfind("devices/disk")]
    named_paths = {named_path for disk in disks for named_path in files.named_paths(conn, disk)}
    return any(
        real in map(files.real, chains.read(path, format).paths) for path, format in named_paths
    )


def _refuse_other(guest: str, snapshot: str, path: str) -> None:
    """Raise Refused if a file lacks the snapshot, or if QEMU would revert to another one."""
    names_by_id = qcow2_snapshots.snapshots(path)
    if snapshot not in names_by_id.values():
        raise errors.Refused(
            f"cannot revert {guest}: {path} contains no snapshot {snapshot}, although "
            f"libvirt lists it: 'virsh snapshot-delete {guest} {snapshot} --metadata' "
            "removes it from the list"
        )
    if [*names_by_id.values()].count(snapshot) > 1:
        raise errors.Refused(
            f"cannot revert {guest}: {path} contains several snapshots {snapshot}, and QEMU would "
            f"use the oldest: 'qemu-img snapshot -l {path}' lists them with their IDs"
        )
    other_name = names_by_id.get(snapshot, snapshot)
    if other_name != snapshot:
        raise errors.Refused(
            f"cannot revert {guest}: QEMU would use {other_name} for snapshot {snapshot}, because "
            f"{other_name} has the ID {snapshot} in {path}: delete snapshot {other_name} first"
        )
