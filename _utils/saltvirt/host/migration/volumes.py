"""Disks that are volumes of storage pools, as a migration sees them on its two hosts."""

import os
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import block_devices, remote_storage, shared_folders
from saltvirt.migration import shared


def local(conn, pool_name, volume, direct=False):
    """What migrate_disks reports of a volume here: ``type``, ``source`` and ``pool``, or the
    ``trouble`` in the way.

    direct: QEMU reaches an iSCSI server by itself (``mode='direct'``).
    """
    try:
        pool = conn.storagePoolLookupByName(pool_name)
        if not pool.isActive():
            return {"type": "file", "trouble": f"storage pool {pool_name} is not started here"}
        found = pool.storageVolLookupByName(volume)
        if shared_folders.is_hidden(found.path()):
            return {"type": "file", "trouble": shared_folders.HIDDEN}
        about = _about(pool)
        what = _is(about["type"], direct)
        known = {"pool": about, "identity": _identity(found, what)}
    except libvirt.libvirtError as exc:
        return {"type": "file", "trouble": exc.get_error_message()}
    return {"type": what, "source": found.path(), **known}


def _is(pool_type, direct):
    """What a volume of such a pool is to QEMU."""
    if pool_type in shared.NETWORK_POOLS or direct:
        return "network"
    return "block" if pool_type in shared.BLOCK_POOLS else "file"


def _identity(found, what):
    named = {"key": found.key(), "size_bytes": found.info()[1]}
    return {**named, "device": block_devices.of_volume(found) if what == "block" else None}


def kind(pool):
    """The pool's type."""
    return ElementTree.fromstring(pool.XMLDesc()).get("type")


def _about(pool):
    root = ElementTree.fromstring(pool.XMLDesc())
    source = root.find("source")
    source = ElementTree.Element("source") if source is None else source
    hosts = [{"name": h.get("name"), "port": h.get("port") or ""} for h in source.iterfind("host")]
    return {
        "name": pool.name(),
        "type": root.get("type"),
        "folder": root.findtext("target/path") or "",
        "source": {
            "hosts": sorted(hosts, key=lambda host: (host["name"] or "", host["port"])),
            "devices": sorted(d.get("path") or "" for d in source.iterfind("device")),
            "dir": source.find("dir").get("path") if source.find("dir") is not None else None,
            "name": source.findtext("name"),
        },
    }


def there(peer, disk, mark):
    """(what the target has of a volume, see saltvirt.migration.storage; the bytes that its pool
    has free).

    mark: the file that was put beside it here, see migrate_marks.
    """
    name = disk["pool"]["name"]
    with translated():
        pool, trouble = _pool(peer, disk["pool"])
        if trouble:
            return {"exists": False, "shared": None, "pool": None, "trouble": trouble}, None
        remote_storage.refresh(pool)
        found = remote_storage.volume(pool, disk["volume"])
        path = os.path.join(_about(pool)["folder"], disk["volume"])
        proven, why = _proven(pool, found, disk, mark)
        seen = {"exists": found is not None, "pool": name, "path": path}
        return {**seen, "shared": proven, "why": why}, pool.info()[3]


def _pool(peer, wanted):
    """(the target's pool of that name, or why it will not do)."""
    where = peer.getHostname()
    try:
        pool = peer.storagePoolLookupByName(wanted["name"])
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL:
            raise
        return None, f"{where} has no storage pool {wanted['name']}: define and start it there"
    if not pool.isActive():
        return None, f"storage pool {wanted['name']} on {where} is not started"
    kinds = dict.fromkeys(shared.FILE_POOLS, "file")
    theirs, mine = _about(pool)["type"], wanted["type"]
    if kinds.get(theirs, theirs) != kinds.get(mine, mine):
        return None, f"storage pool {wanted['name']} is of type {theirs} on {where}, here {mine}"
    return pool, None


def _proven(pool, found, disk, mark):
    """(whether both hosts share the volume, why it is not known)."""
    if disk["type"] == "file":
        return shared_folders.of(disk["source"], shared_folders.same(pool, mark, disk["fs"]))
    if disk["pool"]["type"] in shared.SERVED_POOLS:
        theirs = found and {"key": found.key(), "size_bytes": found.info()[1]}
        mine = {k: disk["identity"][k] for k in ("key", "size_bytes")}
        why = shared.served(disk["pool"], _about(pool), mine, theirs)
    elif found is None:
        return False, None
    else:
        why = shared.device(disk["identity"]["device"], block_devices.of_volume(found))
    return (True, None) if why is None else (None, why)
