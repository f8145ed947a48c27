"""What placement must know of this host, read at the moment it is asked."""

import os
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from saltvirt import settings
from saltvirt.host import domain, links, maintenance, migrate_arrivals
from saltvirt.host.connection import libvirt
from saltvirt.host.record import of_tree


def read(conn, get, images_folder):
    """The host's inventory as plain data; see ``virt.inventory`` for the keys.

    conn: libvirt connection. get: Salt's ``config.get``. images_folder: path.
    """
    info = conn.getInfo()
    guests, promised = _guests(conn)
    return {
        "cpus": info[2],
        "memory_kib": info[1] * 1024,
        "arch": info[0],
        "types": _types(conn),
        "guests": guests,
        "arriving": {a.name: asdict(a) for a in migrate_arrivals.here(guests)},
        "images_folder": {**folder(images_folder), "promised_bytes": promised},
        "bridges": links.bridges(),
        "networks": sorted(n.name() for n in conn.listAllNetworks() if n.isActive()),
        "pools": sorted(p.name() for p in conn.listAllStoragePools() if p.isActive()),
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


def _types(conn):
    root = ElementTree.fromstring(conn.getCapabilities())
    return sorted({d.get("type") for d in root.iterfind("guest/arch/domain")})


def _guests(conn):
    """Every domain by name, and the bytes that their thin disks may still grow."""
    autostarted = {
        d.UUIDString() for d in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    }
    wanted = libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BLOCK
    guests, promised = {}, 0
    for dom, stats in conn.getAllDomainStats(
        wanted, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    ):
        try:
            root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        except libvirt.libvirtError:
            continue  # undefined since it was listed
        promised += _growth(stats)
        guests[dom.name()] = {
            "uuid": dom.UUIDString(),
            "state": domain.state_name(stats.get("state.state")),
            "vcpus": int(root.findtext("vcpu", "1")),
            "memory_kib": int(root.findtext("memory", "0")),
            "autostart": dom.UUIDString() in autostarted,
            "groups": _groups(root),
        }
    return guests, promised


def _growth(stats):
    growth = 0
    for index in range(stats.get("block.count", 0)):
        capacity = stats.get(f"block.{index}.capacity", 0)
        physical = stats.get(f"block.{index}.physical", capacity)
        growth += max(0, capacity - physical)
    return growth


def _groups(root):
    """The groups that ``virt.init`` of the runner was given, from the guest's metadata."""
    entries = of_tree(root).entries
    return next((e.value.split() for e in entries if e.key == "groups"), [])
