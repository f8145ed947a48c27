"""What placement must know of this host, read at the moment it is asked."""

import os
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from saltvirt import settings
from saltvirt.host import domain, links, maintenance, migrate_arrivals
from saltvirt.host.connection import libvirt
from saltvirt.host.record import of_tree
from saltvirt.images import cache


def read(conn, get, images_folder):
    """The host's inventory as plain data; see ``virt.inventory`` for the keys.

    conn: libvirt connection. get: Salt's ``config.get``. images_folder: path.
    """
    info = conn.getInfo()
    guests, growth = _guests(conn)
    types, arches = _runs(conn)
    return {
        "cpus": info[2],
        "memory_kib": info[1] * 1024,
        "arch": info[0],
        "arches": arches,
        "types": types,
        "guests": guests,
        "arriving": {a.name: asdict(a) for a in migrate_arrivals.here(guests)},
        "images_folder": _growing(folder(images_folder), growth),
        "images": sorted({meta["source"] for meta in cache.known(images_folder)}),
        "bridges": links.bridges(),
        "networks": sorted(n.name() for n in conn.listAllNetworks() if n.isActive()),
        "pools": _pools(conn, growth),
        "labels": settings.option(get, "labels", {}),
        "ratios": settings.option(get, "ratios", {}),
        "maintenance": (maintenance.read() or {}).get("reason"),
        "libvirt": conn.getLibVersion(),
    }


def folder(path):
    """Total and free bytes of the file system that the folder is, or will be, on."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    stat = os.statvfs(there)
    return {
        "path": str(path),
        "total_bytes": stat.f_frsize * stat.f_blocks,
        "free_bytes": stat.f_frsize * stat.f_bavail,
    }


def _device(path):
    """Which file system a path is, or will be, on."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    return there.stat().st_dev


def _growing(place, growth):
    """A folder's sizes with the bytes that thin disks on its file system may still grow."""
    own = _device(place["path"])
    promised = sum(size for device, size in growth.items() if device in (own, None))
    return {**place, "promised_bytes": promised}


def _pools(conn, growth):
    """``total_bytes``, ``free_bytes`` and ``promised_bytes`` of each active storage pool."""
    found = {}
    for pool in conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        try:
            _, total, _, free = pool.info()
            path = ElementTree.fromstring(pool.XMLDesc()).findtext("target/path")
        except libvirt.libvirtError:
            continue  # stopped since it was listed
        if path and os.path.isdir(path) and not path.startswith("/dev"):
            sizes = _growing(folder(path), growth)
            del sizes["path"]
        else:
            sizes = {"total_bytes": total, "free_bytes": free, "promised_bytes": 0}
        found[pool.name()] = sizes
    return found


def _runs(conn):
    """(libvirt's domain types, the architectures) of the guests that this host can run."""
    root = ElementTree.fromstring(conn.getCapabilities())
    types = {d.get("type") for d in root.iterfind("guest/arch/domain")}
    return sorted(types), sorted({a.get("name") for a in root.iterfind("guest/arch")})


def _guests(conn):
    """Every domain by name, and by file system what their thin disks may still grow.

    The growth of what is on no file system of ours is under None.
    """
    autostarted = {
        d.UUIDString() for d in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    }
    wanted = libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BLOCK
    guests, growth = {}, {}
    for dom, stats in conn.getAllDomainStats(
        wanted, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    ):
        try:
            root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        except libvirt.libvirtError:
            continue  # undefined since it was listed
        for path, size in _growth(stats):
            device = _device(path) if path and path.startswith("/") else None
            growth[device] = growth.get(device, 0) + size
        guests[dom.name()] = {
            "uuid": dom.UUIDString(),
            "state": domain.state_name(stats.get("state.state")),
            "vcpus": int(root.findtext("vcpu", "1")),
            "memory_kib": int(root.findtext("memory", "0")),
            "autostart": dom.UUIDString() in autostarted,
            "groups": (_entry(root, "groups") or "").split(),
            "deployment": _entry(root, "deployment"),
        }
    return guests, growth


def _growth(stats):
    """(path or None, bytes that it may still grow) of each disk in a domain's statistics."""
    for index in range(stats.get("block.count", 0)):
        capacity = stats.get(f"block.{index}.capacity", 0)
        physical = stats.get(f"block.{index}.physical", capacity)
        if capacity > physical:
            yield stats.get(f"block.{index}.path"), capacity - physical


def _entry(root, key):
    """What the runner put into the guest's metadata under this key, or None."""
    return next((e.value for e in of_tree(root).entries if e.key == key), None)
