"""Whether what two hosts show is one and the same storage: proven, or why it is not.

Equal names and equal UUIDs of pools prove nothing. Files are proven by a marker file, see
saltvirt.host.migration.shared_folders; what is here judges the rest by what both hosts report.
"""

import re

# pools by what a guest gets from them
FILE_POOLS = ("dir", "fs", "netfs", "vstorage")
BLOCK_POOLS = ("logical", "disk", "iscsi", "scsi", "mpath", "zfs")
NETWORK_POOLS = ("rbd", "gluster", "iscsi-direct", "sheepdog")
# pools in which libvirt makes a volume of the size and name that we want, and fills it
FILLED_POOLS = ("dir", "fs", "netfs", "logical", "zfs")
# pools whose source names the server that has the volumes
SERVED_POOLS = (*NETWORK_POOLS, "iscsi")

_NETWORK_FS = re.compile(
    r"nfs\d?|cifs|smb\d|ceph|glusterfs|ocfs2|gfs2?|lustre|gpfs|beegfs|afs|9p|virtiofs|orangefs|"
    r"fuse(\..+)?"
)
# a number that its maker gave to no other device: NAA, EUI-64, NVMe's. Emulated disks have
# serial numbers such as QM00001 on every host.
_WORLD_WIDE = re.compile(
    r"(?:wwn-)?(?:0x|3)([0-9a-f]{16}|[0-9a-f]{32})|2[0-9a-f]{16}|(?:nvme-)?eui\.[0-9a-f]{16,32}|"
    r"(?:nvme-)?uuid\.[0-9a-f-]{36}",
    re.IGNORECASE,
)
_OWN = re.compile(r"localhost(\..*)?|127\..*|::1|\[::1\]|0\.0\.0\.0|::", re.IGNORECASE)


def on_network(fs):
    """Whether a file system of that type comes from a server, so that other hosts may have it."""
    return bool(_NETWORK_FS.fullmatch(fs or ""))


def world_wide(number):
    """Whether a device's number (``…`` or ``… partition N``) is one that no other device has."""
    return bool(number and _WORLD_WIDE.fullmatch(number.partition(" partition ")[0]))


def network(source):
    """Why a disk of ``type='network'`` may not be the same one on another host, or None.

    source: ``protocol``, ``name``, ``hosts`` (each a dict of ``name``, ``port``,
    ``transport``). Its definition goes to the target as it is.
    """
    hosts = source["hosts"]
    if not hosts:
        return (
            f"it is a {source['protocol']} disk that names no server, so each host asks the one of "
            "its own configuration: name the servers in the disk's source"
        )
    for host in hosts:
        if host.get("transport") == "unix" or not host.get("name"):
            return f"its {source['protocol']} server is a socket of this host"
        if _OWN.fullmatch(host["name"]):
            return (
                f"its {source['protocol']} server is called {host['name']}, which is each host "
                "itself: name it by an address that both hosts reach"
            )
    return None


def served(here, there, volume_here, volume_there):
    """Why a volume may not be the same one in the pools of two hosts, or None.

    here, there: the pools: ``name``, ``type`` and ``source``, a dict of ``hosts``,
    ``devices``, ``dir``, ``name``. The volumes: ``key`` and ``size_bytes``; the target's is
    None when it has none.
    """
    mine, theirs = here["source"], there["source"]
    for word in ("hosts", "devices", "dir", "name"):
        if mine[word] != theirs[word]:
            return (
                f"the pools {here['name']} of the two hosts have different sources "
                f"({_short(mine[word])} and {_short(theirs[word])})"
            )
    why = network({"protocol": here["type"], "hosts": mine["hosts"]})
    if why:
        return why
    if volume_there is None:
        return f"the target's pool {here['name']} does not show the volume"
    if volume_here != volume_there:
        return f"the target's pool {here['name']} has another volume of that name"
    return None


def _short(value):
    if isinstance(value, (list, tuple)):
        return ", ".join(_short(one) for one in value) or "nothing"
    if isinstance(value, dict):
        return ":".join(str(part) for part in value.values() if part)
    return str(value or "nothing")


def device(here, there):
    """Why a block device may not be the same one on two hosts, or None.

    Each: ``volume`` (the UUID that LVM gave the logical volume, or None) and ``devices``, the
    numbers of the devices that hold it; None for one without a number.
    """
    if not here["devices"] or not all(map(world_wide, here["devices"])):
        return "its device has no world-wide number (WWN) here by which it could be known there"
    if here["devices"] != there["devices"] or here["volume"] != there["volume"]:
        return "the target has another device there"
    return None
