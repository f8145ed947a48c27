"""Disks that are volumes of storage pools, as a migration sees them on its two hosts."""

from __future__ import annotations

import os
from dataclasses import replace
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import block_devices, remote_storage, shared_folders
from saltvirt.migration import shared
from saltvirt.migration.facts import (
    DeviceIdentity,
    DiskReport,
    PlaceReport,
    PoolReport,
    PoolSource,
    Server,
    VolumeIdentity,
)


def local(conn: libvirt.virConnect, disk: DiskReport, direct: bool = False) -> DiskReport:
    """The disk with what its pool here tells of it, or with the ``trouble`` in the way.

    disk: with its volume and the name of its pool. direct: QEMU reaches an iSCSI server by itself
    (``mode='direct'``).
    """
    name, volume = (disk.pool.name if disk.pool else None) or "", disk.volume or ""
    try:
        pool = conn.storagePoolLookupByName(name)
        if not pool.isActive():
            return _in_trouble(disk, f"storage pool {name} is not started here")
        found = pool.storageVolLookupByName(volume)
        if shared_folders.is_hidden(found.path()):
            return _in_trouble(disk, shared_folders.HIDDEN)
        about = _about(pool)
        what = _is(about.type, direct)
        return replace(
            disk, type=what, source=found.path(), pool=about, identity=_identity(found, what)
        )
    except libvirt.libvirtError as exc:
        return _in_trouble(disk, exc.get_error_message())


def _in_trouble(disk: DiskReport, why: str | None) -> DiskReport:
    return replace(disk, type="file", trouble=why)


def _is(pool_type: str | None, direct: bool) -> str:
    """What a volume of such a pool is to QEMU."""
    if pool_type in shared.NETWORK_POOLS or direct:
        return "network"
    return "block" if pool_type in shared.BLOCK_POOLS else "file"


def _identity(found: libvirt.virStorageVol, what: str) -> VolumeIdentity:
    device = block_devices.of_volume(found) if what == "block" else None
    return VolumeIdentity(found.key(), found.info()[1], device)


def _about(pool: libvirt.virStoragePool) -> PoolReport:
    root = ElementTree.fromstring(pool.XMLDesc())
    source = root.find("source")
    source = ElementTree.Element("source") if source is None else source
    folder = source.find("dir")
    hosts = [Server(host.get("name"), host.get("port") or "") for host in source.iterfind("host")]
    return PoolReport(
        name=pool.name(),
        type=root.get("type"),
        folder=root.findtext("target/path") or "",
        source=PoolSource(
            hosts=tuple(sorted(hosts, key=lambda host: (host.name or "", host.port or ""))),
            devices=tuple(sorted(d.get("path") or "" for d in source.iterfind("device"))),
            dir=folder.get("path") if folder is not None else None,
            name=source.findtext("name"),
        ),
    )


def there(
    peer: libvirt.virConnect, disk: DiskReport, pool: PoolReport, mark: str | None
) -> tuple[PlaceReport, int | None]:
    """(what the target has of a volume, the bytes that its pool has free).

    pool: the disk's. mark: the file that was put beside it here, see shared_folders.
    """
    with translated():
        theirs, trouble = _pool(peer, pool)
        if theirs is None:
            return PlaceReport(trouble=trouble), None
        remote_storage.refresh(theirs)
        found = remote_storage.volume(theirs, disk.volume or "")
        path = os.path.join(_about(theirs).folder, disk.volume or "")
        proven, why = _proven(theirs, found, disk, pool, mark)
        seen = PlaceReport(found is not None, proven, why, path, pool.name)
        return seen, theirs.info()[3]


def _pool(
    peer: libvirt.virConnect, wanted: PoolReport
) -> tuple[libvirt.virStoragePool | None, str | None]:
    """(the target's pool of that name, or why it will not do)."""
    where = peer.getHostname()
    try:
        pool = peer.storagePoolLookupByName(wanted.name or "")
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL:
            raise
        return None, f"{where} has no storage pool {wanted.name}: define and start it there"
    if not pool.isActive():
        return None, f"storage pool {wanted.name} on {where} is not started"
    kinds = dict.fromkeys(shared.FILE_POOLS, "file")
    theirs, mine = _about(pool).type or "", wanted.type or ""
    if kinds.get(theirs, theirs) != kinds.get(mine, mine):
        return None, f"storage pool {wanted.name} is of type {theirs} on {where}, here {mine}"
    return pool, None


def _proven(
    pool: libvirt.virStoragePool,
    found: libvirt.virStorageVol | None,
    disk: DiskReport,
    mine: PoolReport,
    mark: str | None,
) -> tuple[bool | None, str | None]:
    """(whether both hosts share the volume, why it is not known)."""
    if disk.type == "file":
        proof = shared_folders.same(pool, mark, disk.fs)
        return shared_folders.of(disk.source or "", proof)
    identity = disk.identity or VolumeIdentity()
    if mine.type in shared.SERVED_POOLS:
        theirs = VolumeIdentity(found.key(), found.info()[1]) if found is not None else None
        why = shared.served(mine, _about(pool), identity, theirs)
    elif found is None:
        return False, None
    else:
        device = identity.device or DeviceIdentity()
        why = shared.device(device, block_devices.of_volume(found))
    return (True, None) if why is None else (None, why)
