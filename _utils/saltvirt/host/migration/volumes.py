"""Disks that are volumes of storage pools, on the two hosts of a migration."""

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
    LocationReport,
    PoolReport,
    PoolSourceReport,
    StorageServer,
    VolumeIdentity,
)


def inspect_local(conn: libvirt.virConnect, disk: DiskReport, direct: bool = False) -> DiskReport:
    """Return the disk with the details from its pool on this host, or with ``error``.

    disk: with its volume and the name of its pool. direct: QEMU reaches an iSCSI server itself
    (``mode='direct'``).
    """
    name, volume = (disk.pool.name if disk.pool else None) or "", disk.volume or ""
    try:
        pool = conn.storagePoolLookupByName(name)
        if not pool.isActive():
            return _with_error(disk, f"storage pool {name} is not started here")
        vol = pool.storageVolLookupByName(volume)
        if shared_folders.is_hidden(vol.path()):
            return _with_error(disk, shared_folders.HIDDEN)
        pool_report = _pool_report(pool)
        kind = _qemu_type(pool_report.type, direct)
        return replace(
            disk, type=kind, source=vol.path(), pool=pool_report, identity=_identity(vol, kind)
        )
    except libvirt.libvirtError as exc:
        return _with_error(disk, exc.get_error_message())


def _with_error(disk: DiskReport, reason: str | None) -> DiskReport:
    return replace(disk, type="file", error=reason)


def _qemu_type(pool_type: str | None, direct: bool) -> str:
    """Return the type of a volume of such a pool for QEMU."""
    if pool_type in shared.NETWORK_POOLS or direct:
        return "network"
    return "block" if pool_type in shared.BLOCK_POOLS else "file"


def _identity(vol: libvirt.virStorageVol, kind: str) -> VolumeIdentity:
    device = block_devices.volume_identity(vol) if kind == "block" else None
    return VolumeIdentity(vol.key(), vol.info()[1], device)


def _pool_report(pool: libvirt.virStoragePool) -> PoolReport:
    root = ElementTree.fromstring(pool.XMLDesc())
    source = root.find("source")
    source = ElementTree.Element("source") if source is None else source
    folder = source.find("dir")
    hosts = [
        StorageServer(host.get("name"), host.get("port") or "") for host in source.iterfind("host")
    ]
    return PoolReport(
        name=pool.name(),
        type=root.get("type"),
        folder=root.findtext("target/path") or "",
        source=PoolSourceReport(
            hosts=tuple(sorted(hosts, key=lambda host: (host.name or "", host.port or ""))),
            devices=tuple(sorted(d.get("path") or "" for d in source.iterfind("device"))),
            dir=folder.get("path") if folder is not None else None,
            name=source.findtext("name"),
        ),
    )


def inspect_remote(
    peer: libvirt.virConnect, disk: DiskReport, pool: PoolReport, mark: str | None
) -> tuple[LocationReport, int | None]:
    """Return (the target's report of a volume, the free bytes of its pool).

    pool: the disk's. mark: the marker file beside it, see shared_folders.
    """
    with translated():
        target_pool, error = _pool(peer, pool)
        if target_pool is None:
            return LocationReport(error=error), None
        remote_storage.refresh(target_pool)
        vol = remote_storage.volume(target_pool, disk.volume or "")
        path = os.path.join(_pool_report(target_pool).folder, disk.volume or "")
        is_shared, reason = _prove_shared(target_pool, vol, disk, pool, mark)
        location = LocationReport(vol is not None, is_shared, reason, path, pool.name)
        return location, target_pool.info()[3]


def _pool(
    peer: libvirt.virConnect, pool_report: PoolReport
) -> tuple[libvirt.virStoragePool | None, str | None]:
    """Return (the target's pool of that name, or None with the reason)."""
    host = peer.getHostname()
    try:
        pool = peer.storagePoolLookupByName(pool_report.name or "")
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL:
            raise
        return None, f"{host} has no storage pool {pool_report.name}: define and start it there"
    if not pool.isActive():
        return None, f"storage pool {pool_report.name} on {host} is not started"
    kinds = dict.fromkeys(shared.FILE_POOLS, "file")
    target_type, source_type = _pool_report(pool).type or "", pool_report.type or ""
    if kinds.get(target_type, target_type) != kinds.get(source_type, source_type):
        return (
            None,
            f"storage pool {pool_report.name} is of type {target_type} on {host}, here "
            f"{source_type}",
        )
    return pool, None


def _prove_shared(
    pool: libvirt.virStoragePool,
    vol: libvirt.virStorageVol | None,
    disk: DiskReport,
    source_pool: PoolReport,
    mark: str | None,
) -> tuple[bool | None, str | None]:
    """Return (whether both hosts share the volume, why it is unknown)."""
    if disk.type == "file":
        proof = shared_folders.same(pool, mark, disk.fs)
        return shared_folders.file_proof(disk.source or "", proof)
    identity = disk.identity or VolumeIdentity()
    if source_pool.type in shared.SERVED_POOLS:
        target_volume = VolumeIdentity(vol.key(), vol.info()[1]) if vol is not None else None
        reason = shared.served(source_pool, _pool_report(pool), identity, target_volume)
    elif vol is None:
        return False, None
    else:
        device = identity.device or DeviceIdentity()
        reason = shared.device(device, block_devices.volume_identity(vol))
    return (True, None) if reason is None else (None, reason)
