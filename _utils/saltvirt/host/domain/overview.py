"""What one host has and runs: the data of virt.full_info, and the counters of its guests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import addresses, describe, disk_info, lookup, stats
from saltvirt.host.node import info
from saltvirt.host.storage import answers
from saltvirt.system import bounded_io

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from saltvirt.host.domain.describe import DiskInfo, Vm
    from saltvirt.host.domain.stats import Reading

SAMPLE_S = 0.5
_NET = {"bytes": "bytes", "pkts": "packets", "errs": "errs", "drop": "drop"}
_DISK = {
    "rd.reqs": "rd_req",
    "rd.bytes": "rd_bytes",
    "wr.reqs": "wr_req",
    "wr.bytes": "wr_bytes",
    "errors": "errs",
}


def _volumes(conn: libvirt.virConnect, tree: Element, disks: dict[str, DiskInfo]) -> None:
    """Query the pools for the disks of a stopped domain that are given as pool and volume, because
    libvirt's statistics omit them. A pool that is not started sets the disk's ``error``."""
    for node in tree.iterfind("devices/disk[@type='volume']"):
        target, source = node.find("target"), node.find("source")
        disk = disks.get(target.get("dev", "")) if target is not None else None
        if disk is None or source is None or "virtual size" in disk:
            continue
        try:
            pool = conn.storagePoolLookupByName(source.get("pool", ""))
            volume = pool.storageVolLookupByName(source.get("volume", ""))
            answers.volume(volume)
            _, disk["virtual size"], disk["disk size"] = volume.info()
        except libvirt.libvirtError as exc:
            disk["error"] = connection.translate(exc).text
        except bounded_io.StorageTimeout as exc:
            disk["error"] = exc.strerror


def _vms(conn: libvirt.virConnect, readings: Mapping[str, Reading]) -> dict[str, Vm]:
    """Return describe.vm of each domain by name, with what libvirt knows of it beside its
    definition."""
    by_name = {name: describe.vm(reading) for name, reading in readings.items()}
    macs = {
        mac.lower()
        for name, reading in readings.items()
        if reading.active
        for mac in by_name[name].get("nics", {})
    }
    by_mac = addresses.without_guests(conn, macs)
    autostart = _autostart_uuids(conn)
    for name, reading in readings.items():
        details = by_name[name]
        if reading.tree is None:
            continue
        _volumes(conn, reading.tree, details["disks"])
        guest_macs = [mac.lower() for mac in details["nics"]] if reading.active else []
        ips = dict.fromkeys(address for mac in guest_macs for address in by_mac[mac])
        details["addresses"] = addresses.in_order(ips)
        details["autostart"] = details["uuid"] in autostart
    return by_name


def _autostart_uuids(conn: libvirt.virConnect) -> set[str]:
    flag = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
    return {dom.UUIDString() for dom in conn.listAllDomains(flag)}


def vm_info(conn: libvirt.virConnect, name: str | None = None) -> dict[str, Vm]:
    """Return describe.vm of each domain by name; for one named domain with the details of its
    images."""
    by_name = _vms(conn, stats.read(conn, name))
    if name:
        for disk in by_name[str(name)].get("disks", {}).values():
            disk_info.complete(disk)
    return by_name


def disks(conn: libvirt.virConnect, name: str) -> dict[str, DiskInfo]:
    """Return the disks of one domain with the details of their images. Raises NotFound,
    OperationFailed."""
    lookup.lookup(conn, name)  # an empty name would mean all domains
    details = vm_info(conn, name)[str(name)]
    if "error" in details:  # the domain has disappeared meanwhile
        raise errors.OperationFailed(f"cannot read the disks of {name}: {details['error']}")
    return details["disks"]


def vm_state(conn: libvirt.virConnect, name: str | None = None) -> dict[str, str]:
    """Return the state of each domain by name."""
    return {name: reading.state for name, reading in stats.read(conn, name, with_xml=False).items()}


def full_info(conn: libvirt.virConnect) -> dict[str, Any]:
    """Return node_info, vm_info, and what the running guests leave free (CPUs; memory in MiB)."""
    node = info.node(conn)
    readings = stats.read_all(conn)
    running = [(r.tree, r.stats) for r in readings.values() if r.active and r.tree is not None]
    memory_kib = sum(describe.memory_kib(tree, guest_stats)[1] for tree, guest_stats in running)
    return {
        "freecpu": node["cpus"]
        - sum(describe.vcpus(tree, guest_stats) for tree, guest_stats in running),
        "freemem": node["phymemory"] - info.RESERVED_MIB - memory_kib // 1024,
        "node_info": node,
        "vm_info": _vms(conn, readings),
    }


def _cpu_times(
    conn: libvirt.virConnect, name: str | None
) -> tuple[float, dict[str, tuple[int, int]]]:
    readings = stats.read(conn, name, with_xml=False)
    return time.monotonic(), {
        guest: (describe.cpu_time(r.stats), r.stats.get("vcpu.current", 1)) if r.active else (0, 1)
        for guest, r in readings.items()
    }


def vm_cputime(conn: libvirt.virConnect, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return the CPU time in ns, and the current use of the vCPUs from 0 to 100 percent.

    The percentage is measured over half a second if a guest runs.
    """
    start_s, before = _cpu_times(conn, name)
    end_s, after = start_s, before
    if any(used for used, _ in before.values()):
        time.sleep(SAMPLE_S)
        end_s, after = _cpu_times(conn, name)
    by_guest = {}
    for guest, (used, vcpus) in after.items():
        percent = 0
        if end_s > start_s and guest in before:
            delta_ns = max(0, used - before[guest][0])
            percent = round(100 * delta_ns / ((end_s - start_s) * 1e9 * vcpus))
        by_guest[guest] = {"cputime": used, "cputime_percent": min(100, percent)}
    return by_guest


def _summed(stats: dict[str, Any], kind: str, names: dict[str, str]) -> dict[str, int]:
    total = dict.fromkeys(names.values(), 0)
    for index in range(stats.get(f"{kind}.count", 0)):
        for counter, field in names.items():
            total[field] += stats.get(f"{kind}.{index}.{counter}", 0)
    return total


def vm_netstats(conn: libvirt.virConnect, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return the sums of the counters of all interfaces of each domain since it started."""
    names = {
        f"{direction}.{counter}": f"{direction}_{field}"
        for direction in ("rx", "tx")
        for counter, field in _NET.items()
    }
    readings = stats.read(conn, name, with_xml=False)
    return {guest: _summed(reading.stats, "net", names) for guest, reading in readings.items()}


def vm_diskstats(conn: libvirt.virConnect, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return the sums of the counters of all disks of each active domain since it started."""
    readings = stats.read(conn, name)
    shown = {guest: reading for guest, reading in readings.items() if reading.active or name}
    return {guest: _summed(reading.stats, "block", _DISK) for guest, reading in shown.items()}
