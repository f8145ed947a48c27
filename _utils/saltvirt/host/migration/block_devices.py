"""The identity of a block device on either host: its world-wide numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt
from saltvirt.host.storage import pool_source
from saltvirt.migration import shared
from saltvirt.migration.facts import DeviceIdentity


def identity(conn: libvirt.virConnect, path: str) -> DeviceIdentity:
    """Return the DeviceIdentity of a path, for saltvirt.migration.shared.device."""
    try:
        volume = conn.storageVolLookupByPath(path)
    except libvirt.libvirtError:
        return DeviceIdentity(None, (_number(conn, path),))
    return volume_identity(volume)


def volume_identity(volume: libvirt.virStorageVol) -> DeviceIdentity:
    """Return the DeviceIdentity of a volume in a storage pool."""
    conn, pool = volume.connect(), volume.storagePoolLookupByVolume()
    if pool_source.type_of(pool) == "logical":
        source = ElementTree.fromstring(volume.XMLDesc()).iterfind("source/device")
        devices = {device.get("path", "") for device in source}
        return DeviceIdentity(volume.key(), tuple(sorted(_number(conn, d) or "" for d in devices)))
    # the key of a SCSI device is its scsi_id, that of other devices is a path
    number = volume.key() if shared.world_wide(volume.key()) else _number(conn, volume.path())
    return DeviceIdentity(None, (number,))


def _number(conn: libvirt.virConnect, path: str) -> str | None:
    """Return the world-wide number of a disk, with the partition's; None without one."""
    for names, serial in _disks(conn):
        for name in names:
            part = re.fullmatch(re.escape(name) + r"((?:p|-part)?\d+)?", path)
            if part and serial and shared.world_wide(serial):
                return serial + _partition(part.group(1))
    return None


def _partition(text: str | None) -> str:
    number = re.sub(r"\D", "", text or "")
    return f" partition {number}" if number else ""


def _disks(conn: libvirt.virConnect) -> Iterator[tuple[list[str], str | None]]:
    """Yield (paths, serial number) of the host's disks, according to udev."""
    try:
        devices = conn.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_STORAGE)
    except libvirt.libvirtError:  # the target's libvirt has no node device driver
        return
    for device in devices:
        try:
            root = ElementTree.fromstring(device.XMLDesc(0))
        except libvirt.libvirtError:  # removed since it was listed
            continue
        names = {node.text for node in root.iterfind("devnode")}
        names |= {node.text for node in root.iterfind("capability/block")}
        yield sorted(filter(None, names)), root.findtext("capability/serial")
