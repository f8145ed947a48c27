"""A guest's disk as a volume of a storage pool."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, TypedDict, cast
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design.volume import compat
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.provision import existing_disk, undo_disks
from saltvirt.host.storage import deletion, mounted, pool_source, pools
from saltvirt.images import clone
from saltvirt.xml import tree
from saltvirt.xml.volume import Volume

if TYPE_CHECKING:
    from saltvirt.design.source import Source
    from saltvirt.host.provision.disk_notes import Note
    from saltvirt.host.provision.disks import Image, Place, Progress, Work
    from saltvirt.host.storage.file_mark import Marks
    from saltvirt.revert import Revert
    from saltvirt.spec.disk import DiskSpec

_FILES = ("dir", "fs", "netfs")
_BLOCK = ("logical", "disk", "zfs")


class Planned(TypedDict, total=False):
    """Arguments of disks.Work."""

    pool: str
    volume: str
    direct: Source | None
    path: str
    format: str
    make: bool


def _pool(conn: libvirt.virConnect, name: str) -> libvirt.virStoragePool:
    with connection.translated(f"use storage pool {name}"):
        pool = conn.storagePoolLookupByName(name)
        if not pool.isActive():
            raise errors.OperationFailed(f"storage pool {name} is not started")
    return pool


def _partition(pool: libvirt.virStoragePool, there: Iterable[str]) -> str:
    """The name that the next volume of a pool of partitions must have, e.g. ``sdb2``. there: the
    names of its volumes."""
    device = tree.child(ElementTree.fromstring(pool.XMLDesc()), "source/device").get("path", "")
    base = os.path.basename(os.path.realpath(device))
    taken = [int(m.group(1)) for v in there if (m := re.search(r"(\d+)$", v))]
    return f"{base}{max(taken, default=0) + 1}"


def _find(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol | None:
    return pool.storageVolLookupByName(name) if name in pool.listVolumes() else None


def plan(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    format: str,
    xen: bool = False,
    gone: Collection[Place] = (),
) -> Planned:
    """The place of a DiskSpec that names a pool, as arguments of disks.Work.

    format: of a new volume, where the pool holds files. xen: for a guest of Xen's. gone: the
    (pool, volume) of those that are removed before.

    A volume that exists is used as it is when source_file names it, or with ``existing``.
    """
    pool_name = spec.pool or ""
    pool = _pool(conn, pool_name)
    kind = pool_source.type_of(pool)
    named = spec.source_file
    volumes = pool.listVolumes()
    there = [one for one in volumes if (pool_name, one) not in gone]
    pools.refuse_unmounted(conn, pool)
    volume = named or (_partition(pool, there) if kind == "disk" else f"{guest}_{spec.name}")
    found = pool.storageVolLookupByName(volume) if volume in there else None
    if found is None and volume in volumes:
        existing_disk.refuse_leftover(spec, guest, f"{pool_name}/{volume}")
    if found is not None and not (named or spec.existing):
        raise errors.AlreadyExists(
            f"disk {spec.name}: pool {spec.pool} has a volume {volume} already: "
            f"{existing_disk.advice(conn, spec, guest, found.path())}"
        )
    if found is not None and spec.image and not spec.existing:
        raise errors.AlreadyExists(
            f"disk {spec.name}: pool {spec.pool} has a volume {volume} already, which an image "
            "does not overwrite"
        )
    direct = pool_source.direct(conn, pool, volume, xen)
    place: Planned = {"pool": pool_name, "volume": volume, "direct": direct}
    if found is not None:
        path = found.path()
        known = (
            existing_disk.format_of(conn, spec, path) if kind in _FILES else spec.format or "raw"
        )
        place["path"], place["format"] = path, known
        return place
    if spec.device != "disk":
        raise errors.NotFound(f"disk {spec.name}: no volume {volume} in pool {spec.pool}")
    if spec.image and kind not in _FILES + _BLOCK:
        raise errors.Unsupported(f"an image cannot be put into a pool of type {kind}: {spec.pool}")
    place["make"], place["format"] = True, format if kind in _FILES else "raw"
    return place


def look(conn: libvirt.virConnect, pool_name: str, name: str) -> tuple[str, str | None]:
    """(path, format) of a volume that is there; the format is None where its content decides.

    Raises NotFound, OperationFailed.
    """
    pool = _pool(conn, pool_name)
    with connection.translated(f"look for volume {name} in pool {pool_name}"):
        volume = _find(pool, name)
    if volume is None:
        raise errors.NotFound(f"there is no volume {name} in storage pool {pool_name}")
    return volume.path(), None if pool_source.type_of(pool) in _FILES else "raw"


def place_of(conn: libvirt.virConnect, path: str) -> tuple[str, str] | tuple[None, None]:
    """(pool, volume) of a path that a storage pool shows, else (None, None)."""
    try:
        volume = conn.storageVolLookupByPath(path)
        return volume.storagePoolLookupByVolume().name(), volume.name()
    except libvirt.libvirtError:
        return None, None


def _xml(work: Work, kind: str | None) -> str:
    whole = work.spec.sparse_volume is False or kind in _BLOCK
    format = (work.format or "raw") if kind in _FILES else None
    wanted = Volume(
        name=work.volume,
        capacity_bytes=work.size_bytes,
        allocation_bytes=work.size_bytes if whole else 0,
        format=format,
        compat=compat(format),
    )
    if work.spec.backing_store_path:
        wanted.backing_path = work.spec.backing_store_path
        wanted.backing_format = work.spec.backing_store_format or "raw"
    return wanted.tostring()


def _delete(conn: libvirt.virConnect, pool: str, volume: str, guest: str | None) -> None:
    found = _find(conn.storagePoolLookupByName(pool), volume)
    if found is not None:
        with deletion.unused(conn, found.path(), guest, ours=True):
            found.delete(0)


def _file_from_image(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    work: Work,
    undo: Revert,
    progress: Progress | None,
    guest: str | None,
    note: Note | Marks | None,
) -> None:
    folder = ElementTree.fromstring(pool.XMLDesc()).findtext("target/path")
    path = os.path.join(folder or "", work.volume or "")
    overlay = bool(work.spec.overlay_image)
    clone.clone(
        cast("Image", work.image), path, work.format or "",
        size_bytes=work.size_bytes, overlay=overlay, progress=progress,
        claim=note.mark if note else None,
    )  # fmt: skip
    undo_disks.push(undo, conn, path, guest)
    pool.refresh(0)
    work.path = path


def make(
    conn: libvirt.virConnect,
    work: Work,
    undo: Revert,
    progress: Progress | None = None,
    guest: str | None = None,
    note: Note | Marks | None = None,
) -> None:
    """Makes the volume, from the image if there is one; pushes its deletion. guest, note: as for
    disks.make."""
    pool = _pool(conn, work.pool or "")
    kind = pool_source.type_of(pool)
    folder = pools.refuse_unmounted(conn, pool)
    if folder:
        mounted.remember(folder)
    with connection.translated(f"make volume {work.volume} in pool {work.pool}"):
        if work.image and kind in _FILES:
            _file_from_image(conn, pool, work, undo, progress, guest, note)
            return
        volume = pool.createXML(_xml(work, kind), 0)
        undo.push(f"delete volume {work.volume}", _delete, conn, work.pool, work.volume, guest)
        if note:
            note.volume(work, volume)
        work.path = volume.path()
    if work.image:
        clone.clone(work.image, work.path, "raw", size_bytes=work.size_bytes, progress=progress)
