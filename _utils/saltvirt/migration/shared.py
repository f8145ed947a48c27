"""Decide whether two hosts access the same storage: verified, or the reason why not.

Equal names and equal UUIDs of pools are not sufficient. Files are verified with a marker file, see
saltvirt.host.migration.shared_folders; this module judges everything else from the reports of both
hosts.
"""

from __future__ import annotations

import re

from saltvirt.migration.facts import (
    DeviceIdentity,
    NetworkSource,
    PoolReport,
    StorageServer,
    VolumeIdentity,
)

# pools by the kind of disk that a guest gets
FILE_POOLS = ("dir", "fs", "netfs", "vstorage")
BLOCK_POOLS = ("logical", "disk", "iscsi", "scsi", "mpath", "zfs")
NETWORK_POOLS = ("rbd", "gluster", "iscsi-direct", "sheepdog")
# pools in which libvirt creates a volume with a given size and name, and fills it
FILLED_POOLS = ("dir", "fs", "netfs", "logical", "zfs")
# pools whose source names the server
SERVED_POOLS = (*NETWORK_POOLS, "iscsi")

_NETWORK_FS = re.compile(
    r"nfs\d?|cifs|smb\d|ceph|glusterfs|ocfs2|gfs2?|lustre|gpfs|beegfs|afs|9p|virtiofs|orangefs|"
    r"fuse(\..+)?"
)
# numbers that are unique by their standard: NAA, EUI-64, NVMe's. Emulated disks have
# serial numbers such as QM00001 on every host.
_WORLD_WIDE = re.compile(
    r"(?:wwn-)?(?:0x|3)([0-9a-f]{16}|[0-9a-f]{32})|2[0-9a-f]{16}|(?:nvme-)?eui\.[0-9a-f]{16,32}|"
    r"(?:nvme-)?uuid\.[0-9a-f-]{36}",
    re.IGNORECASE,
)
_LOCALHOST = re.compile(r"localhost(\..*)?|127\..*|::1|\[::1\]|0\.0\.0\.0|::", re.IGNORECASE)


def on_network(fs: str | None) -> bool:
    """Return whether a file system of that type comes from a server, so that other hosts may use
    it."""
    return bool(_NETWORK_FS.fullmatch(fs or ""))


def world_wide(number: str | None) -> bool:
    """Return whether a device's number (``…`` or ``… partition N``) is unique world-wide."""
    return bool(number and _WORLD_WIDE.fullmatch(number.partition(" partition ")[0]))


def network(source: NetworkSource) -> str | None:
    """Return why a disk of ``type='network'`` may differ on another host, or None.

    Its definition is transferred unchanged.
    """
    if not source.hosts:
        return (
            f"it is a {source.protocol} disk that names no server, so each host uses the one in "
            "its own configuration: name the servers in the disk's source"
        )
    for host in source.hosts:
        if host.transport == "unix" or not host.name:
            return f"its {source.protocol} server is a socket of this host"
        if _LOCALHOST.fullmatch(host.name):
            return (
                f"its {source.protocol} server is called {host.name}, which is each host "
                "itself: name it by an address that both hosts reach"
            )
    return None


def served(
    source_pool: PoolReport,
    target_pool: PoolReport,
    source_volume: VolumeIdentity,
    target_volume: VolumeIdentity | None,
) -> str | None:
    """Return why a volume may differ in the pools of two hosts, or None.

    target_volume: None if the target has none. Its device is not compared.
    """
    source_def, target_def = source_pool.source, target_pool.source
    for field in ("hosts", "devices", "dir", "name"):
        source_value, target_value = getattr(source_def, field), getattr(target_def, field)
        if source_value != target_value:
            return (
                f"the pools {source_pool.name} of the two hosts have different sources "
                f"({_as_text(source_value)} and {_as_text(target_value)})"
            )
    reason = network(NetworkSource(source_pool.type, hosts=source_def.hosts))
    if reason:
        return reason
    if target_volume is None:
        return f"the target's pool {source_pool.name} does not show the volume"
    identity = target_volume.key, target_volume.size_bytes
    if (source_volume.key, source_volume.size_bytes) != identity:
        return f"the target's pool {source_pool.name} has another volume of that name"
    return None


def _as_text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_as_text(item) for item in value) or "nothing"
    if isinstance(value, StorageServer):
        return ":".join(filter(None, (value.name, value.port)))
    return str(value or "nothing")


def device(source: DeviceIdentity, target: DeviceIdentity) -> str | None:
    """Return why a block device may differ on two hosts, or None."""
    if not source.devices or not all(map(world_wide, source.devices)):
        return (
            "its device has no world-wide number (WWN) here by which the target could identify it"
        )
    if source != target:
        return "the target has another device there"
    return None
