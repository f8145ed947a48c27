"""Disks as volumes of a storage pool."""

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
from saltvirt.host.storage import deletion, pool_source, pools
from saltvirt.images import clone
from saltvirt.system import mount_guard
from saltvirt.xml import tree
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    from saltvirt.design.source import Source
    from saltvirt.host.provision.disk_build import DiskBuild, ImageSource, Progress, StorageLocation
    from saltvirt.host.provision.disk_journal import DiskJournal
    from saltvirt.host.storage.file_mark import Marks
    from saltvirt.revert import UndoStack
    from saltvirt.spec.disk import DiskSpec

_FILES = ("dir", "fs", "netfs")
_BLOCK = ("logical", "disk", "zfs")
# their volumes are block devices of the host
_DEVICES = (*_BLOCK, "scsi", "mpath", "iscsi")


class DiskBuildArgs(TypedDict, total=False):
    """Arguments of DiskBuild."""

    pool: str
    volume: str
    direct: Source | None
    block: bool
    path: str
    format: str
    make: bool


def _pool(conn: libvirt.virConnect, name: str) -> libvirt.virStoragePool:
    with connection.translated(f"use storage pool {name}"):
        pool = conn.storagePoolLookupByName(name)
        if not pool.isActive():
            raise errors.OperationFailed(f"storage pool {name} is not started")
    return pool


def _partition(pool: libvirt.virStoragePool, volume_names: Iterable[str]) -> str:
    """Return the name that the next volume of a partition pool must have, e.g. ``sdb2``.

    volume_names: the names of its volumes.
    """
    device = tree.child(ElementTree.fromstring(pool.XMLDesc()), "source/device").get("path", "")
    base = os.path.basename(os.path.realpath(device))
    numbers = [int(m.group(1)) for v in volume_names if (m := re.search(r"(\d+)$", v))]
    return f"{base}{max(numbers, default=0) + 1}"


def _find(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol | None:
    return pool.storageVolLookupByName(name) if name in pool.listVolumes() else None


def plan(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    format: str,
    xen: bool = False,
    freed_locations: Collection[StorageLocation] = (),
) -> DiskBuildArgs:
    """Plan a disk in a pool; return arguments of DiskBuild.

    format: of a new volume, if the pool holds files. xen: for a Xen guest. freed_locations: (pool,
    volume) of volumes that are removed first. An existing volume is used unchanged if source_file
    names it, or with ``existing``.
    """
    pool_name = spec.pool or ""
    pool = _pool(conn, pool_name)
    kind = pool_source.type_of(pool)
    volumes = pool.listVolumes()
    existing = [
        volume_name for volume_name in volumes if (pool_name, volume_name) not in freed_locations
    ]
    pools.refuse_unmounted(conn, pool)
    volume = spec.source_file or (
        _partition(pool, existing) if kind == "disk" else f"{guest}_{spec.name}"
    )
    existing_volume = pool.storageVolLookupByName(volume) if volume in existing else None
    if existing_volume is None and volume in volumes:
        existing_disk.refuse_leftover(spec, guest, f"{pool_name}/{volume}")
    if existing_volume is not None and not (spec.source_file or spec.existing):
        raise errors.AlreadyExists(
            f"disk {spec.name}: pool {spec.pool} already has a volume {volume}: "
            f"{existing_disk.advice(conn, spec, guest, existing_volume.path())}"
        )
    if existing_volume is not None and spec.image and not spec.existing:
        raise errors.AlreadyExists(
            f"disk {spec.name}: pool {spec.pool} already has a volume {volume}, which an "
            "image does not overwrite"
        )
    direct = pool_source.direct(conn, pool, volume, xen)
    arguments: DiskBuildArgs = {"pool": pool_name, "volume": volume, "direct": direct}
    arguments["block"] = kind in _DEVICES
    if existing_volume is not None:
        path = existing_volume.path()
        format_name = (
            existing_disk.format_of(conn, spec, path) if kind in _FILES else spec.format or "raw"
        )
        arguments["path"], arguments["format"] = path, format_name
        return arguments
    if spec.device != "disk":
        raise errors.NotFound(f"disk {spec.name}: pool {spec.pool} has no volume {volume}")
    if spec.image and kind not in _FILES + _BLOCK:
        raise errors.Unsupported(
            f"disk {spec.name}: a pool of type {kind} cannot store an image: {spec.pool}"
        )
    arguments["make"], arguments["format"] = True, format if kind in _FILES else "raw"
    return arguments


def volume_image(conn: libvirt.virConnect, pool_name: str, name: str) -> tuple[str, str | None]:
    """Return (path, format) of an existing volume; None as format if the content decides.

    Raises NotFound, OperationFailed.
    """
    pool = _pool(conn, pool_name)
    with connection.translated(f"look up volume {name} in pool {pool_name}"):
        volume = _find(pool, name)
    if volume is None:
        raise errors.NotFound(f"storage pool {pool_name} has no volume {name}")
    return volume.path(), None if pool_source.type_of(pool) in _FILES else "raw"


def volume_of_path(conn: libvirt.virConnect, path: str) -> tuple[str, str] | tuple[None, None]:
    """Return (pool, volume) of a path in a storage pool, or (None, None)."""
    try:
        volume = conn.storageVolLookupByPath(path)
        return volume.storagePoolLookupByVolume().name(), volume.name()
    except libvirt.libvirtError:
        return None, None


def _xml(build: DiskBuild, kind: str | None) -> str:
    preallocated = build.spec.sparse_volume is False or kind in _BLOCK
    format = (build.format or "raw") if kind in _FILES else None
    volume_xml = Volume(
        name=build.volume,
        capacity_bytes=build.size_bytes,
        allocation_bytes=build.size_bytes if preallocated else 0,
        format=format,
        compat=compat(format),
    )
    if build.spec.backing_store_path:
        volume_xml.backing_path = build.spec.backing_store_path
        volume_xml.backing_format = build.spec.backing_store_format or "raw"
    return volume_xml.tostring()


def _delete(conn: libvirt.virConnect, pool: str, volume: str, guest: str | None) -> None:
    volume_object = _find(conn.storagePoolLookupByName(pool), volume)
    if volume_object is not None:
        with deletion.ensure_unused(conn, volume_object.path(), guest, is_own=True):
            volume_object.delete(0)


def _file_from_image(
    conn: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    build: DiskBuild,
    undo: UndoStack,
    progress: Progress | None,
    guest: str | None,
    note: DiskJournal | Marks | None,
) -> None:
    folder = ElementTree.fromstring(pool.XMLDesc()).findtext("target/path")
    path = os.path.join(folder or "", build.volume or "")
    overlay = bool(build.spec.overlay_image)
    clone.clone(
        cast("ImageSource", build.image), path, build.format or "",
        size_bytes=build.size_bytes, overlay=overlay, progress=progress,
        claim=note.mark if note else None,
    )  # fmt: skip
    undo_disks.push(undo, conn, path, guest)
    pool.refresh(0)
    build.path = path


def make(
    conn: libvirt.virConnect,
    build: DiskBuild,
    undo: UndoStack,
    progress: Progress | None = None,
    guest: str | None = None,
    note: DiskJournal | Marks | None = None,
) -> None:
    """Create the volume, from its image if it has one, and push its deletion.

    guest, note: as in disks.make.
    """
    pool = _pool(conn, build.pool or "")
    kind = pool_source.type_of(pool)
    folder = pools.refuse_unmounted(conn, pool)
    if folder:
        mount_guard.remember(folder)
    with connection.translated(f"create volume {build.volume} in pool {build.pool}"):
        if build.image and kind in _FILES:
            _file_from_image(conn, pool, build, undo, progress, guest, note)
            return
        volume = pool.createXML(_xml(build, kind), 0)
        undo.push(f"delete volume {build.volume}", _delete, conn, build.pool, build.volume, guest)
        if note:
            note.volume(build, volume)
        build.path = volume.path()
    if build.image:
        clone.clone(build.image, build.path, "raw", size_bytes=build.size_bytes, progress=progress)
