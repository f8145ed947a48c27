"""Collect the facts for a migration's checks: about the guest, its host, and the target."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.host import hooks
from saltvirt.host.connection import libvirt, skip_undefined, translated
from saltvirt.host.domain import creation, describe, lookup, metadata, placement_facts
from saltvirt.host.migration import (
    block_devices,
    guest_disks,
    remote_storage,
    same_content,
    secrets,
    shared_folders,
    volumes,
)
from saltvirt.host.node import hugepages
from saltvirt.host.storage import files, pool_source
from saltvirt.migration import shared, storage
from saltvirt.migration.facts import (
    BackingFile,
    DeviceIdentity,
    DiskReport,
    DomainReport,
    GuestReport,
    HostCpu,
    LocationReport,
    MachineReport,
    NicReport,
    TargetReport,
)
from saltvirt.placement import facts

JOBS = {1: "a job", 2: "a migration or save"}
_BOOT = "/proc/sys/kernel/random/boot_id"


def guest(dom: libvirt.virDomain) -> GuestReport:
    """Return the report of a guest of this host. Opens no disk for writing."""
    conn = dom.connect()
    with translated():
        active = bool(dom.isActive())
        root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        kind, cpu = root.find("os/type"), root.find("cpu")
        reasons = [feature.incomplete_reason(dom.name()) for feature in hooks.installed()]
        incomplete = next(filter(None, reasons), None)
        # an incomplete disk is read from another machine, if that can be reached
        disks, orphaned_layers = ((), ()) if incomplete else _storage(dom, root)
        pending_disks = () if incomplete or not active else _pending_disks(dom, root)
        return GuestReport(
            name=dom.name(),
            uuid=dom.UUIDString(),
            host=conn.getHostname(),
            host_uuid=host_uuid(conn),
            active=active,
            state=lookup.state(dom),
            phase=creation.of_domain(dom).value,
            persistent=bool(dom.isPersistent()),
            autostart=bool(dom.isPersistent() and dom.autostart()),
            job=JOBS.get(dom.jobInfo()[0]) if active else None,
            managed_save=bool(dom.hasManagedSaveImage()),
            snapshots=dom.snapshotNum(),
            hypervisor=conn.getType(),
            qemu=conn.getVersion(),
            libvirt=conn.getLibVersion(),
            memory_kib=int(root.findtext("maxMemory") or root.findtext("memory") or 0),
            vcpus=int(root.findtext("vcpu", "1")),
            page_kib=placement_facts.page_kib(root),
            arch=kind.get("arch") if kind is not None else None,
            machine=kind.get("machine") if kind is not None else None,
            virt_type=root.get("type"),
            emulator=root.findtext("devices/emulator"),
            nvram=files.variables_of(root),
            cpu=ElementTree.tostring(cpu, encoding="unicode") if cpu is not None else None,
            host_cpu=host_cpu(conn) if _is_hosts(cpu) else None,
            nics=tuple(_nic(nic) for nic in root.iterfind("devices/interface")),
            hostdevs=_hostdevs(root),
            filesystems=tuple(t.get("dir") for t in root.iterfind("devices/filesystem/target")),
            tpm=root.find("devices/tpm/backend[@type='emulator']") is not None,
            disks=disks,
            orphaned_layers=orphaned_layers,
            incomplete=incomplete,
            process=process(dom),
            cid=min(_cids([root]), default=None),
            secrets=secrets.references(conn, root),
            pending_disks=pending_disks,
        )


def process(dom: libvirt.virDomain) -> str | None:
    """Return what identifies the process that runs a guest of this host: the host's boot ID, and
    libvirt's domain ID. None if the guest is off."""
    number = dom.ID() if dom.isActive() else -1
    if number < 0:
        return None
    with open(_BOOT, encoding="ascii") as file:
        return f"{file.read().strip()} {number}"


def _cids(trees: Iterable[Element]) -> set[int]:
    """Return the fixed vsock CIDs in the definitions of a guest."""
    elements = [cid for tree in trees for cid in tree.iterfind("devices/vsock/cid")]
    fixed = [cid for cid in elements if cid.get("auto") != "yes"]
    return {int(cid.get("address", "")) for cid in fixed if cid.get("address", "").isdigit()}


def _snapshots(dom: libvirt.virDomain) -> list[Element]:
    """Return the parsed XML of the guest's snapshots."""
    snapshots = []
    for snapshot in dom.listAllSnapshots():
        with skip_deleted():
            snapshots.append(ElementTree.fromstring(snapshot.getXMLDesc(0)))
    return snapshots


@contextlib.contextmanager
def skip_deleted() -> Iterator[None]:
    """Ignore a snapshot that was deleted after it was listed."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
            raise


def _storage(
    dom: libvirt.virDomain, root: Element
) -> tuple[tuple[DiskReport, ...], tuple[str, ...]]:
    """Return (the disks, files of snapshots that no disk depends on).

    The guest's own files are those of its record, and those on which one of its snapshots set an
    overlay.
    """
    conn, snapshots = dom.connect(), _snapshots(dom)
    owned_paths = metadata.disk_paths(conn, [root]).union(
        *map(guest_disks.overlaid_paths, snapshots)
    )
    disks = guest_disks.read(root, conn, {files.real(path) for path in owned_paths})
    disk_files = {disk.source for disk in disks} | {b.path for disk in disks for b in disk.chain}
    snapshot_files = set[str]().union(*map(guest_disks.snapshot_paths, snapshots))
    real_files = {files.real(path) for path in disk_files if path}
    return disks, tuple(sorted(p for p in snapshot_files if files.real(p) not in real_files))


def _pending_disks(dom: libvirt.virDomain, root: Element) -> tuple[DiskReport, ...]:
    """Return the disks that a running guest does not have yet: libvirt transfers their definitions,
    but nothing would copy their data. root: the running XML."""
    if not dom.isPersistent():
        return ()
    definition = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    return guest_disks.read(definition, dom.connect(), excluding=root)


def _nic(nic: Element) -> NicReport:
    source, mac = nic.find("source"), nic.find("mac")
    kind = nic.get("type", "")
    name = (source.get(kind) or source.get("dev")) if source is not None else None
    return NicReport(kind, name, mac.get("address", "").lower() if mac is not None else "")


def _hostdevs(root: Element) -> tuple[str, ...]:
    """Return the host devices of the guest; a virtual function of a network card (SR-IOV) is an
    interface of its own type."""
    devices = [_hostdev(dev) for dev in root.iterfind("devices/hostdev")]
    nics = root.iterfind("devices/interface[@type='hostdev']")
    inputs = root.iterfind("devices/input[@type='evdev']/source")
    devices += [f"input {source.get('dev')}" for source in inputs]
    return (*devices, *(f"network interface {_nic(nic).mac}" for nic in nics))


def _hostdev(dev: Element) -> str:
    address = dev.find("source/address")
    parts = [f"{k}={v}" for k, v in sorted(address.attrib.items())] if address is not None else []
    return " ".join([dev.get("type") or dev.get("mode") or "", *parts])


def host_uuid(conn: libvirt.virConnect) -> str | None:
    """Return libvirt's UUID of the host, from the BIOS or libvirt's own file."""
    root = ElementTree.fromstring(conn.getCapabilities())
    return root.findtext("host/uuid")


def _is_hosts(cpu: Element | None) -> bool:
    """Return whether the guest has exactly the CPU of its host."""
    return cpu is not None and cpu.get("mode") == "host-passthrough"


def host_cpu(conn: libvirt.virConnect) -> HostCpu | None:
    """Return the host's CPU, or None if libvirt does not know it."""
    cpu = ElementTree.fromstring(conn.getCapabilities()).find("host/cpu")
    if cpu is None or cpu.findtext("model") is None:
        return None
    features = frozenset(feature.get("name", "") for feature in cpu.iterfind("feature"))
    return HostCpu(cpu.findtext("vendor"), cpu.findtext("model"), features)


def target(
    peer: libvirt.virConnect, report: GuestReport, marks: Mapping[str, str] | None = None
) -> TargetReport:
    """Return the target's report, without the guests that are being moved to it.

    peer: the connection to it; marks: {folder: name of a marker file of the source}, which proves
    shared storage if the target sees it.
    """
    with translated():
        capabilities = ElementTree.fromstring(peer.getCapabilities())
        _, memory_mib, cpus, *_ = peer.getInfo()
        host_report = TargetReport(
            hostname=peer.getHostname(),
            host_uuid=capabilities.findtext("host/uuid"),
            hypervisor=peer.getType(),
            qemu=peer.getVersion(),
            libvirt=peer.getLibVersion(),
            domains=domains(peer),
            growth=growth(peer),
            hugepages=hugepages.huge_pages(capabilities, memory_mib * 1024),
            cpus=cpus,
            memory_kib=memory_mib * 1024,
            networks={net.name(): bool(net.isActive()) for net in peer.listAllNetworks()},
            links=_links(peer),
            bridges=_links(peer, "bridge"),
            machine=_machine(peer, report),
            cpu_error=_cpu_error(peer, report),
            cpu=host_cpu(peer) if report.host_cpu else None,
            missing_secrets=secrets.missing(peer, report.secrets),
        )
    locations, free = _folders(peer, report, marks or {})
    return replace(host_report, locations=locations, free_bytes=free)


def domains(peer: libvirt.virConnect) -> tuple[DomainReport, ...]:
    """Return the target's guests, with the resources promised to them."""
    flags = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
    autostarted = {dom.UUIDString() for dom in peer.listAllDomains(flags)}
    reports = []
    for dom in peer.listAllDomains():
        with skip_undefined():
            reports.append(_domain(dom, dom.UUIDString() in autostarted))
    return tuple(reports)


def _domain(dom: libvirt.virDomain, autostart: bool) -> DomainReport:
    state = lookup.state(dom)
    trees = placement_facts.definitions(dom, state in facts.ACTIVE)
    macs = trees[-1].iterfind("devices/interface/mac")
    used = trees[-1].find("devices/vsock/cid[@address]") if len(trees) > 1 else None
    running = {int(used.get("address", 0))} if used is not None else set()
    guest_facts = placement_facts.read(dom.name(), trees)
    return DomainReport(
        # only its own host knows whether its process lives: it counts as being created
        replace(
            guest_facts, uuid=dom.UUIDString(), state=state, autostart=autostart, interrupted=False
        ),
        tuple(mac.get("address", "").lower() for mac in macs),
        frozenset(_cids(trees) | running),
    )


def growth(peer: libvirt.virConnect) -> dict[str, int]:
    """Return the bytes by which thin disks of the target's guests may still grow, by folder."""
    by_folder: dict[str, int] = {}
    for _, stats in peer.getAllDomainStats(
        libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BLOCK,
        libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT,
    ):
        active = lookup.state_name(stats.get("state.state")) in facts.ACTIVE
        for disk in describe.block_stats(stats).values():
            allocated = disk.get("physical" if active else "allocation", 0)
            growth_bytes = disk.get("capacity", 0) - allocated
            if growth_bytes > 0 and disk.get("path", "").startswith("/"):
                folder = os.path.dirname(disk["path"])
                by_folder[folder] = by_folder.get(folder, 0) + growth_bytes
    return by_folder


def _links(peer: libvirt.virConnect, kind: str | None = None) -> list[str] | None:
    """Return the names of the host's network interfaces, or only of its bridges.

    None if libvirt does not know them; it then rejects the guest itself when it arrives.
    """
    try:
        links = peer.listAllInterfaces()
        if kind is not None:
            links = [link for link in links if f"type='{kind}'" in link.XMLDesc(0)]
        return sorted(link.name() for link in links) or None
    except libvirt.libvirtError:
        return None


def _machine(peer: libvirt.virConnect, report: GuestReport) -> MachineReport:
    machine = (report.arch, report.machine, report.virt_type, 0)
    try:
        text = peer.getDomainCapabilities(None, *machine)
    except libvirt.libvirtError as exc:
        return MachineReport(exc.get_error_message())
    root = ElementTree.fromstring(text)
    vcpu = root.find("vcpu")
    emulator = root.findtext("path")
    return MachineReport(
        max_vcpus=int(vcpu.get("max", 0)) if vcpu is not None else None,
        emulator=emulator,
        has_emulator=report.emulator in (None, emulator) or _runs(peer, report.emulator, machine),
    )


def _runs(
    peer: libvirt.virConnect,
    emulator: str | None,
    machine: tuple[str | None, str | None, str | None, int],
) -> bool:
    """Return whether the host has an emulator of that path for the machine."""
    try:
        peer.getDomainCapabilities(emulator, *machine)
    except libvirt.libvirtError:
        return False
    return True


def _cpu_error(peer: libvirt.virConnect, report: GuestReport) -> str | None:
    """Return libvirt's reason why the guest's CPU does not run on the target; None if it does."""
    if report.cpu is None or ElementTree.fromstring(report.cpu).get("mode") == "maximum":
        return None
    flags = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    machine = (report.arch, report.machine, report.virt_type)
    try:
        peer.compareHypervisorCPU(None, *machine, report.cpu, flags)
    except libvirt.libvirtError as exc:
        unknown = (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_CONFIG_UNSUPPORTED)
        if exc.get_error_code() in unknown:
            return None
        return exc.get_error_message()
    return None


def paths(report: GuestReport) -> list[str]:
    """Return the source's paths that matter at the same location on the target: disks that are not
    volumes, backing files, firmware variables."""
    candidates: list[str | None] = []
    for disk in report.all_disks:
        if _is_readable(disk):
            candidates += [] if disk.pool else [disk.source]
            candidates += [base.path for base in disk.chain]
    return list(dict.fromkeys(filter(None, [*candidates, report.nvram])))


def _is_readable(disk: DiskReport) -> bool:
    """Return whether the disk is in a file or device of this host that could be inspected."""
    return bool(disk.source) and disk.is_local and not disk.error


def _folders(
    peer: libvirt.virConnect, report: GuestReport, marks: Mapping[str, str]
) -> tuple[dict[str, LocationReport], dict[str, int | None]]:
    """Return (the target's report of all locations, the free bytes in each folder there)."""
    by_folder: dict[str, list[str]] = {}
    for path in paths(report):
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    bases = {base.path: base for disk in report.all_disks for base in disk.chain}
    blocks = {disk.source: disk for disk in report.all_disks if disk.type == "block"}
    locations: dict[str, LocationReport] = {}
    free: dict[str, int | None] = {}
    for folder, folder_paths in by_folder.items():
        compared: dict[str, Callable[[], bool]] = {}
        with remote_storage.open_pool(peer, folder) as pool:
            free[folder] = pool.info()[3] if pool is not None else None
            files = [path for path in folder_paths if path not in blocks]
            proof = _proof(pool, marks.get(folder), folder) if files else (None, None)
            for path in files:
                locations[path] = _path(pool, path, proof)
                if pool and path in bases and locations[path].exists and not locations[path].shared:
                    locations[path], compared[path] = _base(
                        peer, pool, locations[path], bases[path]
                    )
            for path in set(folder_paths) & {*blocks}:
                locations[path] = _device(peer, pool, path, blocks[path])
        for path, same in compared.items():  # the pool of the folder is closed: this may take long
            locations[path] = replace(locations[path], same_content=same())
    for disk in report.all_disks:
        if disk.pool and not disk.error:
            mark = marks.get(os.path.dirname(disk.source or ""))
            location, free_bytes = volumes.inspect_remote(peer, disk, disk.pool, mark)
            locations[disk.key] = location
            if free_bytes is not None:
                free[os.path.dirname(location.path or "")] = free_bytes
    return locations, free


def _proof(
    pool: libvirt.virStoragePool | None, mark: str | None, folder: str
) -> shared_folders.Proof:
    """Return (whether the target's folder is the same as ours, why that is unknown)."""
    if pool is None:  # the folder does not exist
        return False, None
    return shared_folders.same(pool, mark, shared_folders.file_system(folder))


def _path(
    pool: libvirt.virStoragePool | None, path: str, proof: shared_folders.Proof
) -> LocationReport:
    """Return the target's report of a path."""
    exists = pool is not None and remote_storage.volume(pool, path) is not None
    shared, reason = shared_folders.file_proof(path, proof)
    if shared and not exists:
        shared, reason = None, f"the target shares the folder, but does not show {path}"
    return LocationReport(exists, shared, reason, path, _name(pool))


def _name(pool: libvirt.virStoragePool | None) -> str | None:
    """Return the name of a pool that belongs to the operator."""
    return None if pool is None or remote_storage.is_transient(pool) else pool.name()


def _device(
    peer: libvirt.virConnect, pool: libvirt.virStoragePool | None, path: str, disk: DiskReport
) -> LocationReport:
    """Return the target's report of a block device's path. Without a pool in which libvirt can fill
    a device, it can only be verified as shared."""
    exists = pool is not None and remote_storage.volume(pool, path) is not None
    name = _name(pool) if pool and pool_source.type_of(pool) in shared.FILLED_POOLS else None
    location = LocationReport(exists, path=path, pool=name)
    device = (disk.identity and disk.identity.device) or DeviceIdentity()
    reason = shared.device(device, block_devices.identity(peer, path))
    if reason is None:
        return replace(location, shared=True)
    if name and not exists:
        return replace(location, shared=False)
    if not exists:
        reason += ", and the target has no storage pool to which it could be copied"
    return replace(location, reason=reason)


def _base(
    peer: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    location: LocationReport,
    base: BackingFile,
) -> tuple[LocationReport, Callable[[], bool]]:
    """Return the report of an existing backing file, with ``incoming``, and a function that
    compares its content after the pool was closed.

    A file whose name is the hash of its content need not be read; a shorter one is still being
    copied.
    """
    if remote_storage.volume(pool, storage.incoming_path(base.path)) is not None:
        return replace(location, incoming=True), lambda: True
    volume = remote_storage.volume(pool, base.path)
    is_complete = volume is not None and remote_storage.physical_bytes(volume) == base.file_bytes
    if storage.by_content(base.path):
        return replace(location, incoming=not is_complete), lambda: True
    if volume is None or not is_complete:
        return location, lambda: False
    return location, same_content.begin(volume, base.path, host_uuid(peer))


def marked(report: GuestReport) -> AbstractContextManager[dict[str, str]]:
    """Create a marker file beside each file of the guest for the block: {folder: name}, see
    shared_folders."""
    file_paths: list[str] = [report.nvram] if report.nvram else []
    for disk in report.all_disks:
        if _is_readable(disk) and disk.type == "file" and (disk.seed or not disk.read_only):
            file_paths += [disk.source or "", *(base.path for base in disk.chain)]
    return shared_folders.place_markers(file_paths)
