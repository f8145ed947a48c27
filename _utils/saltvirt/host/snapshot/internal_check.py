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
                f"{path} has a snapshot {snapshot} inside, of which libvirt does not know: take "
                f"another name, or, while the guest is off, 'qemu-img snapshot -d {snapshot} "
                f"{path}' deletes that one"
            )


def _refuse_lost(
    conn: libvirt.virConnect, domain: libvirt.virDomain, snapshot: str, target: str, base: str
) -> None:
    guest = domain.name()
    if _has_disk(conn, domain, base):
        return
    reason = f"which {guest} has no longer: attach it again"
    if not usage.is_there(conn, base):
        reason = "which is not there any more: bring it back"
    raise errors.Refused(
        f"cannot revert {guest}: snapshot {snapshot} would put back disk {target}, {base}, "
        f"{reason}, or give the snapshot up with 'virsh snapshot-delete {guest} {snapshot} "
        "--metadata', which leaves all files as they are"
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
            f"cannot revert {guest}: {path} has no snapshot {snapshot} inside, though libvirt "
            f"lists it: 'virsh snapshot-delete {guest} {snapshot} --metadata' gives it up"
        )
    if [*names_by_id.values()].count(snapshot) > 1:
        raise errors.Refused(
            f"cannot revert {guest}: {path} has more than one snapshot {snapshot} inside, and QEMU "
            f"would take the oldest one: 'qemu-img snapshot -l {path}' lists them with their IDs"
        )
    other_name = names_by_id.get(snapshot, snapshot)
    if other_name != snapshot:
        raise errors.Refused(
            f"cannot revert {guest}: QEMU would take {other_name} for snapshot {snapshot}, as "
            f"{other_name} "
            f"has the ID {snapshot} in {path}: delete snapshot {other_name} first"
        )
