"""Guests and snapshots as read from libvirt for the rules of ``saltvirt.snapshot``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import chains, files
from saltvirt.snapshot import rules
from saltvirt.snapshot import tree as model

# the rules apply to QEMU's disks
DRIVER = "QEMU"
# from this version on, libvirt compares all disks before it deletes an internal snapshot of a
# running guest; 9.0 crashes if one is missing
_COMPARES = 9_000_000


def oldest_first(domain: libvirt.virDomain) -> list[libvirt.virDomainSnapshot]:
    """Return all snapshots, each after its parent."""
    return domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)


def snapshot(
    conn: libvirt.virConnect, vir_snapshot: libvirt.virDomainSnapshot
) -> model.SnapshotNode:
    """Return one snapshot, with volumes replaced by their paths."""
    return model.read(
        vir_snapshot.getXMLDesc(0), vir_snapshot.isCurrent() == 1, functools.partial(_volume, conn)
    )


def _volume(conn: libvirt.virConnect, pool: str, volume: str) -> str:
    return files.volume_path(conn, pool, volume) or model.of_pool(pool, volume)


def tree(conn: libvirt.virConnect, domain: libvirt.virDomain) -> model.SnapshotTree:
    """Return the snapshots of a guest."""
    return model.SnapshotTree(snapshot(conn, vir_snapshot) for vir_snapshot in oldest_first(domain))


def guest(conn: libvirt.virConnect, domain: libvirt.virDomain) -> rules.SnapshotGuest:
    """Return the facts of a guest on which its snapshots depend."""
    root = files.trees(domain)[0]
    is_qemu = conn.getType() == DRIVER
    return rules.SnapshotGuest(
        name=domain.name(),
        running=bool(domain.isActive()),
        memory_kib=int(domain.info()[2]),
        variables=is_qemu and model.has_variables(root),
        tpm=root.find("devices/tpm/backend[@type='emulator']") is not None,
        folders=tuple(
            target.get("dir", "")
            for target in root.iterfind("devices/filesystem/driver[@type='virtiofs']/../target")
        ),
        disks=tuple(_disks(conn, root)) if is_qemu else (),
        current_sources=_disk_sources(conn, root) if compares(conn) and domain.isActive() else None,
    )


def compares(conn: libvirt.virConnect) -> bool:
    """Return whether libvirt compares disks and media before it deletes a running guest's
    snapshot."""
    return bool(conn.getType() == DRIVER and conn.getLibVersion() >= _COMPARES)


def _disk_sources(conn: libvirt.virConnect, root: ElementTree.Element) -> dict[str, str | None]:
    """Return {target: location of its data} of all disks and drives."""
    sources = {}
    for node in root.iterfind("devices/disk"):
        target = node.find("target")
        if target is not None:
            source = node.find("source")
            sources[target.get("dev", "")] = model.location(
                source, functools.partial(_volume, conn)
            )
    return sources


def _disks(conn: libvirt.virConnect, root: ElementTree.Element) -> Iterator[rules.WritableDisk]:
    """Yield the writable disks of the guest."""
    for node in root.iterfind("devices/disk"):
        source, target = node.find("source"), node.find("target")
        if source is None or target is None or node.find("readonly") is not None:
            continue
        if node.get("device", "disk") != "disk":
            continue
        path = files.source_path(conn, source)
        yield rules.WritableDisk(
            target=target.get("dev", ""),
            kind=node.get("type", "file"),
            format=files.declared(node),
            path=path,
            regular=path is not None and files.is_regular(path),
            location=model.location(source, functools.partial(_volume, conn)),
            shareable=node.find("shareable") is not None,
        )


def refuse_without_disks(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    snapshots: Iterable[model.SnapshotNode],
    action: str,
    next_start: bool = False,
) -> None:
    """Raise Refused if a snapshot has a layer of a disk that was detached.

    The layer would be emptied or deleted with the data that the disk holds. action: the refused
    operation, as in "revert". next_start: compare with the disks of the next start.
    """
    if conn.getType() != DRIVER:
        return
    root = files.trees(domain)[-1 if next_start else 0]
    disks_by_target = {disk.target: disk for disk in _disks(conn, root)}
    for item in snapshots:
        for disk in item.disks:
            if disk.layer and not _is_same_disk(conn, disks_by_target.get(disk.target), disk):
                guest = domain.name()
                raise errors.Refused(
                    f"cannot {action} {guest}: snapshot {item.name} has the layer {disk.layer} of "
                    f"disk {disk.target}, which {guest} has no longer: attach that layer as "
                    f"{disk.target} again, or give the snapshot up with 'virsh snapshot-delete "
                    f"{guest} {item.name} --metadata', which leaves all files as they are"
                )


def refuse_moving_disks(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    action: str,
    targets: Collection[str] | None = None,
) -> None:
    """Raise Refused if a disk of the running guest will have another target or file at its next
    start, or leave.

    libvirt changes the layers of the running guest, and those of its definition only at the same
    target: the next start would use a file without the latest data, or one that was deleted.
    action: the refused operation. targets: of the disks concerned; None: all, and the operation is
    possible after the next start.
    """
    trees = files.trees(domain)
    if conn.getType() != DRIVER or len(trees) < 2:
        return
    stored = {disk.target: disk.location for disk in _disks(conn, trees[1])}
    for disk in _disks(conn, trees[0]):
        if targets is not None and disk.target not in targets:
            continue
        if stored.get(disk.target) != disk.location:
            restart = ", or shut it down and start it" if targets is None else ""
            raise errors.Refused(
                f"cannot {action} {domain.name()}: its disk {disk.target} ({disk.location}) has "
                f"another target or file at the next start, or none: undo that change{restart} "
                "first"
            )


def newest_layer(
    conn: libvirt.virConnect, domain: libvirt.virDomain, is_base: Callable[[str], bool]
) -> tuple[str, model.SnapshotDisk] | None:
    """Return (path without layers, newest layer) of a disk of which the current snapshot or its
    ancestors have layers; None if they have none. is_base: whether a path is that of the disk
    without layers."""
    if conn.getType() != DRIVER:
        return None  # others have no layers, and some drivers no snapshots
    snapshots = tree(conn, domain)
    current = snapshots.current
    lineage = {current.name, *snapshots.ancestors(current.name)} if current else set()
    newest: tuple[str, model.SnapshotDisk] | None = None
    for item in snapshots:  # parents come first
        for disk in item.disks if item.name in lineage else ():
            if not (disk.layer and disk.base):
                continue
            if newest and disk.base in (newest[1].layer, newest[1].reverted):
                newest = newest[0], disk
            elif is_base(disk.base):
                newest = disk.base, disk
    return newest


def _is_same_disk(
    conn: libvirt.virConnect, current_disk: rules.WritableDisk | None, disk: model.SnapshotDisk
) -> bool:
    """Return whether the current disk at the target is the snapshot's disk.

    A disk that cannot be read here counts as the same.
    """
    if current_disk is None:
        return False
    if not (current_disk.path and connection.is_local(conn)):
        return True
    chain = {files.real(path) for path in chains.read(current_disk.path, current_disk.format).paths}
    return any(files.real(data_path) in chain for data_path in (disk.layer, disk.base) if data_path)
