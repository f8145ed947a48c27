"""Grow a guest's disk, also while the guest runs."""

from __future__ import annotations

import contextlib
import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.design.source import disk_locations
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import creation, describe, lookup, saved_memory
from saltvirt.host.provision import admission
from saltvirt.host.storage import answers, files, pool_source, usage
from saltvirt.images import chain, confined, inspect
from saltvirt.placement import facts
from saltvirt.rights import confidential
from saltvirt.units import human_bytes
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.xml.devices.disk_source import DiskSource


@dataclass(frozen=True)
class _Disk:
    """path: None if the disk has no file on this host. runs: whether the guest has it open now; a
    disk that is added at the next start is a file like that of a stopped guest. volume: a
    description of the volume in a storage pool or on a server. on_server: that volume, if a pool of
    this host has it."""

    target: str
    path: str | None
    format: str
    runs: bool
    volume: str | None = None
    on_server: libvirt.virStorageVol | None = None


def _nodes(dom: libvirt.virDomain, flags: int) -> dict[str, ElementTree.Element]:
    tree = ElementTree.fromstring(dom.XMLDesc(flags))
    targets = ((node.find("target"), node) for node in tree.iterfind("devices/disk"))
    return {target.get("dev", ""): node for target, node in targets if target is not None}


def _find(
    conn: libvirt.virConnect, dom: libvirt.virDomain, target: str, read_only: bool = False
) -> _Disk:
    """Return the disk with this target, of the running guest or of its definition; the definition
    wins. read_only: also a disk that the guest cannot write to."""
    target = str(target)
    running = _nodes(dom, 0) if _conflicting_disks(dom, target) is None else {}
    nodes = {**_nodes(dom, libvirt.VIR_DOMAIN_XML_INACTIVE), **running}
    if target not in nodes:
        stored = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        names = identity.disk_names(stored)
        disks = (f"{names[dev]} ({dev})" if dev in names else dev for dev in sorted(nodes))
        available = ", ".join(disks) or "none"
        raise errors.NotFound(f"{dom.name()} has no disk {target}; it has {available}")
    node, volume = nodes[target], None
    is_read_only = node.find("readonly") is not None and not read_only
    if node.get("device", "disk") != "disk" or is_read_only:
        raise errors.InvalidInput(f"disk {target} of {dom.name()} cannot be written to")
    source, driver = node.find("source"), node.find("driver")
    on_server = None
    if node.get("type") == "network":
        path, volume = None, f"storage pool with {describe.source_of(node)} that is started"
        on_server = _volume_of(conn, Disk(node))
    elif source is not None and source.get("volume"):
        path = files.volume_path(conn, source.get("pool"), source.get("volume"))
        volume = f"volume {source.get('volume')} in storage pool {source.get('pool')}"
    else:
        path = describe.source_of(node)
    format = driver.get("type", "raw") if driver is not None else "raw"
    return _Disk(
        target, path, format, bool(dom.isActive() and target in running), volume, on_server
    )


def _conflicting_disks(dom: libvirt.virDomain, target: str) -> tuple[Disk, Disk] | None:
    """Return (the disk of the running guest at the target, the disk of its definition there) if
    they differ: the guest has not released the former."""
    if not dom.isActive():
        return None
    running = _nodes(dom, 0).get(target)
    configured = _nodes(dom, libvirt.VIR_DOMAIN_XML_INACTIVE).get(target)
    if running is None or configured is None:
        return None
    live, stored = Disk(running), Disk(configured)
    same = not live.source or not stored.source or disk_locations(live) & disk_locations(stored)
    return None if same else (live, stored)


def refuse_conflict(dom: libvirt.virDomain, target: str) -> None:
    """Raise Refused if the running guest has another disk at the target than its definition: it is
    ambiguous which one is meant."""
    if conflict := _conflicting_disks(dom, target):
        live, stored = (disk.source.location() for disk in conflict)
        raise errors.Refused(
            f"{dom.name()} is still running with {live} at {target}, but its definition "
            f"has {stored} there: stop it first"
        )


def _volume_of(conn: libvirt.virConnect, disk: Disk) -> libvirt.virStorageVol | None:
    """Return the volume, in a started pool of this host, of a disk on a server; None without
    one."""
    base = posixpath.basename(disk.source.name or "")
    for pool in conn.listAllStoragePools(libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
        with contextlib.suppress(libvirt.libvirtError):
            volume = pool.storageVolLookupByName(base)
            source = pool_source.direct(conn, pool, base)
            if source and source.server and source.locations() & disk_locations(disk):
                return volume
    return None


def _current_size(dom: libvirt.virDomain, disk: _Disk) -> int:
    """Return the disk's current size in bytes. Raises NotFound."""
    if disk.runs:
        return dom.blockInfo(disk.target)[0]
    if disk.on_server is not None:
        answers.volume(disk.on_server)
        return disk.on_server.info()[1]
    if not disk.path:
        missing = f"no {disk.volume} exists" if disk.volume else "it has no file"
        raise errors.NotFound(f"disk {disk.target} of {dom.name()}: {missing} on this host")
    size: int = inspect.inspect(disk.path, disk.format, folders=["/"]).virtual_size_bytes
    return size


def size_of(conn: libvirt.virConnect, dom: libvirt.virDomain, target: str) -> int:
    """Return the size in bytes of the disk with this target."""
    return _current_size(dom, _find(conn, dom, target, read_only=True))


def refuse_shared(conn: libvirt.virConnect, dom: libvirt.virDomain, target: str) -> None:
    """Raise Refused if another guest uses the disk or is based on it. Disks that are marked as
    shareable may be grown."""
    path = _find(conn, dom, target, read_only=True).path
    definitions = [_nodes(dom, 0), _nodes(dom, libvirt.VIR_DOMAIN_XML_INACTIVE)]
    disks = [nodes[target] for nodes in definitions if target in nodes]
    shareable = any(disk.find("shareable") is not None for disk in disks)
    if not path or shareable:
        return
    used = usage.read(conn, dom.UUIDString(), images=False)
    users = used.users_of(usage.keys_of(conn, path))
    if users:
        raise errors.Refused(
            f"cannot grow {path}: {confidential.sensitive_names(users)} uses it too"
        )


def _volume(conn: libvirt.virConnect, path: str) -> libvirt.virStorageVol | None:
    try:
        return conn.storageVolLookupByPath(path)
    except libvirt.libvirtError:
        return None


def _grow_stopped(conn: libvirt.virConnect, path: str, format: str, size_bytes: int) -> None:
    volume = _volume(conn, path)
    if volume is not None and not files.is_regular(path):
        volume.resize(size_bytes)
        return
    argv = ["qemu-img", "resize", "-q", "-f", format, path, str(size_bytes)]
    confined.run(argv, f"grow {path}", reads=chain.names(path, format)[1:], writes=[path])


def disk_growth(source: DiskSource, more_bytes: int) -> facts.DiskFootprint:
    """Return the additional space of a disk. source: of the disk's xml element."""
    path = source.file or source.dev
    return facts.DiskFootprint(more_bytes, path and files.real(path), source.pool)


def _check_capacity(
    conn: libvirt.virConnect,
    admission_config: AdmissionConfig,
    dom: libvirt.virDomain,
    target: str,
    more_bytes: int,
) -> None:
    """Raise NoRoom if the host has promised the space to other guests."""
    built = Domain.fromstring(dom.XMLDesc(0))
    stored = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    request = admission.request_of(built)
    matches = [d for d in (*built.disks, *stored.disks) if d.target == target and d.source]
    grown = [disk_growth(disk.source, more_bytes) for disk in matches[:1]]
    demand = replace(request, disks=tuple(d for d in grown if d.path or d.pool))
    admission.check(conn, admission_config, demand, is_new=False, filter_names=("disk", "pools"))


def target_of(dom: libvirt.virDomain, disk: str) -> str:
    """Return the target of a disk that is given by its target, or by its name in the guest's
    record: the current one if the disk has another target at the next start."""
    stored = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    target = disk
    if all(existing.target != disk for existing in stored.disks):
        names = identity.disk_names(stored)
        target = next((target for target, name in names.items() if name == disk), disk)
    running = [*Domain.fromstring(dom.XMLDesc(0)).disks] if dom.isActive() else []
    if any(existing.target == target for existing in running):
        return target
    places = [disk_locations(existing) for existing in stored.disks if existing.target == target]
    moving = (existing for existing in running if places and disk_locations(existing) & places[0])
    return next((existing.target or target for existing in moving), target)


def grow(
    conn: libvirt.virConnect,
    name: str,
    target: str,
    size_bytes: int,
    admission_config: AdmissionConfig | None = None,
    test: bool = False,
) -> tuple[int, int]:
    """Grow the disk and confirm it. Return (bytes before, bytes after).

    target: of the disk, or its name. admission_config: None if the host has admitted it already.
    test: only check it. Raises NoRoom if the space is promised to other guests.
    """
    dom = lookup.lookup(conn, name)
    target = target_of(dom, str(target))
    creation.require_complete(dom, f"grow disk {target} of")
    refuse_conflict(dom, target)
    disk = _find(conn, dom, target)
    with connection.translated(f"grow disk {target} of {name}"):
        before = _current_size(dom, disk)
        if size_bytes < before:
            raise errors.InvalidInput(
                f"disk {target} of {name} has {human_bytes(before)}; disks are never shrunk"
            )
        if size_bytes > before:
            saved_memory.refuse(dom, f"grow disk {target} of")
            refuse_shared(conn, dom, target)
            with admission_config.lock() if admission_config else contextlib.nullcontext():
                if admission_config:
                    _check_capacity(conn, admission_config, dom, target, size_bytes - before)
                if test:
                    return before, size_bytes
                _grow(conn, dom, disk, size_bytes)
        after = _current_size(dom, disk)
    if after < size_bytes:
        raise errors.OperationFailed(f"disk {target} of {name} still has {human_bytes(after)}")
    return before, after


def _grow(conn: libvirt.virConnect, dom: libvirt.virDomain, disk: _Disk, size_bytes: int) -> None:
    """Grow a disk of the running guest, a volume on a server, or a file."""
    if disk.runs:
        dom.blockResize(disk.target, size_bytes, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    elif disk.on_server is not None:
        disk.on_server.resize(size_bytes)
    elif disk.path:
        _grow_stopped(conn, disk.path, disk.format, size_bytes)
