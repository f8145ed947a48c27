"""What a migration's checks must know of the guest, on its host, and of the other host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.host.connection import libvirt, translated, unless_gone
from saltvirt.host.domain import creation, describe, lookup, metadata, placement_facts, stands
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
    MachineReport,
    Nic,
    PlaceReport,
    TargetReport,
)
from saltvirt.placement import facts

JOBS = {1: "a job", 2: "a migration or save"}
_BOOT = "/proc/sys/kernel/random/boot_id"


def guest(dom: libvirt.virDomain) -> GuestReport:
    """The report of a guest of this host. Opens no disk for writing."""
    conn = dom.connect()
    with translated():
        active = bool(dom.isActive())
        root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        kind, cpu = root.find("os/type"), root.find("cpu")
        stood = stands.of(dom.name())
        # what it stands on is read from another machine, if that can be reached
        disks, apart = ((), ()) if stood else _storage(dom, root)
        later = () if stood or not active else _later(dom, root)
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
            apart=apart,
            stands_on=stood.ident if stood else None,
            process=process(dom),
            cid=min(_cids([root]), default=None),
            secrets=secrets.of(conn, root),
            later=later,
        )


def process(dom: libvirt.virDomain) -> str | None:
    """What tells the process that runs a guest of this host from an earlier and a later one: the
    host's boot, and libvirt's number. None of a guest that does not run."""
    number = dom.ID() if dom.isActive() else -1
    if number < 0:
        return None
    with open(_BOOT, encoding="ascii") as file:
        return f"{file.read().strip()} {number}"


def _cids(trees: Iterable[Element]) -> set[int]:
    """The fixed CIDs of a guest's vsock, by its definitions."""
    found = [cid for tree in trees for cid in tree.iterfind("devices/vsock/cid")]
    fixed = [cid for cid in found if cid.get("auto") != "yes"]
    return {int(cid.get("address", "")) for cid in fixed if cid.get("address", "").isdigit()}


def _snapshots(dom: libvirt.virDomain) -> list[Element]:
    """The XML of the guest's snapshots, parsed."""
    found = []
    for snapshot in dom.listAllSnapshots():
        with unless_deleted():
            found.append(ElementTree.fromstring(snapshot.getXMLDesc(0)))
    return found


@contextlib.contextmanager
def unless_deleted() -> Iterator[None]:
    """Passes over a snapshot that went since it was listed."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
            raise


def _storage(
    dom: libvirt.virDomain, root: Element
) -> tuple[tuple[DiskReport, ...], tuple[str, ...]]:
    """(the disks, the files of snapshots on which no disk stands).

    The guest's own files are those of our record, and those on which a snapshot of it set an
    overlay.
    """
    conn, snapshots = dom.connect(), _snapshots(dom)
    own = metadata.disk_paths(conn, [root]).union(*map(guest_disks.before, snapshots))
    disks = guest_disks.read(root, conn, {files.real(path) for path in own})
    seen = {disk.source for disk in disks} | {b.path for disk in disks for b in disk.chain}
    theirs = set[str]().union(*map(guest_disks.of_snapshot, snapshots))
    known = {files.real(path) for path in seen if path}
    return disks, tuple(sorted(p for p in theirs if files.real(p) not in known))


def _later(dom: libvirt.virDomain, root: Element) -> tuple[DiskReport, ...]:
    """The disks that a running guest has not yet: libvirt takes its definition along, and nobody
    would copy them. root: what it runs with."""
    if not dom.isPersistent():
        return ()
    definition = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    return guest_disks.read(definition, dom.connect(), but=root)


def _nic(nic: Element) -> Nic:
    source, mac = nic.find("source"), nic.find("mac")
    kind = nic.get("type", "")
    name = (source.get(kind) or source.get("dev")) if source is not None else None
    return Nic(kind, name, mac.get("address", "").lower() if mac is not None else "")


def _hostdevs(root: Element) -> tuple[str, ...]:
    """The devices of the host in the guest; a virtual function of a network card (SR-IOV) is an
    interface of its own type."""
    found = [_hostdev(dev) for dev in root.iterfind("devices/hostdev")]
    nics = root.iterfind("devices/interface[@type='hostdev']")
    return (*found, *(f"network interface {_nic(nic).mac}" for nic in nics))


def _hostdev(dev: Element) -> str:
    address = dev.find("source/address")
    parts = [f"{k}={v}" for k, v in sorted(address.attrib.items())] if address is not None else []
    return " ".join([dev.get("type") or dev.get("mode") or "", *parts])


def host_uuid(conn: libvirt.virConnect) -> str | None:
    """What tells one host from another: libvirt's, made from the BIOS or its own file."""
    root = ElementTree.fromstring(conn.getCapabilities())
    return root.findtext("host/uuid")


def _is_hosts(cpu: Element | None) -> bool:
    """Whether a guest has just the CPU of its host."""
    return cpu is not None and cpu.get("mode") == "host-passthrough"


def host_cpu(conn: libvirt.virConnect) -> HostCpu | None:
    """The host's own CPU, or None where libvirt does not know it."""
    cpu = ElementTree.fromstring(conn.getCapabilities()).find("host/cpu")
    if cpu is None or cpu.findtext("model") is None:
        return None
    features = frozenset(one.get("name", "") for one in cpu.iterfind("feature"))
    return HostCpu(cpu.findtext("vendor"), cpu.findtext("model"), features)


def target(
    peer: libvirt.virConnect, report: GuestReport, marks: Mapping[str, str] | None = None
) -> TargetReport:
    """The other host's report, but for the guests that are on their way to it.

    peer: the connection to it; marks: {folder: name of a file that the source has just put
    there}, which proves shared storage when the target sees it.
    """
    with translated():
        capabilities = ElementTree.fromstring(peer.getCapabilities())
        _, memory_mib, cpus, *_ = peer.getInfo()
        found = TargetReport(
            hostname=peer.getHostname(),
            host_uuid=capabilities.findtext("host/uuid"),
            hypervisor=peer.getType(),
            qemu=peer.getVersion(),
            libvirt=peer.getLibVersion(),
            domains=domains(peer),
            growth=growth(peer),
            hugepages=hugepages.huge(capabilities, memory_mib * 1024),
            cpus=cpus,
            memory_kib=memory_mib * 1024,
            networks={net.name(): bool(net.isActive()) for net in peer.listAllNetworks()},
            links=_links(peer),
            bridges=_links(peer, "bridge"),
            machine=_machine(peer, report),
            cpu_error=_cpu_error(peer, report),
            cpu=host_cpu(peer) if report.host_cpu else None,
            lacking=secrets.lacking(peer, report.secrets),
        )
    places, free = _folders(peer, report, marks or {})
    return replace(found, places=places, free_bytes=free)


def domains(peer: libvirt.virConnect) -> tuple[DomainReport, ...]:
    """The target's guests, and what they are promised."""
    flags = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
    autostarted = {dom.UUIDString() for dom in peer.listAllDomains(flags)}
    found = []
    for dom in peer.listAllDomains():
        with unless_gone():
            found.append(_domain(dom, dom.UUIDString() in autostarted))
    return tuple(found)


def _domain(dom: libvirt.virDomain, autostart: bool) -> DomainReport:
    state = lookup.state(dom)
    trees = placement_facts.definitions(dom, state in facts.ACTIVE)
    macs = trees[-1].iterfind("devices/interface/mac")
    used = trees[-1].find("devices/vsock/cid[@address]") if len(trees) > 1 else None
    running = {int(used.get("address", 0))} if used is not None else set()
    about = placement_facts.read(dom.name(), trees)
    return DomainReport(
        # whether its process lives can be asked on its own host only: it counts as being created
        replace(about, uuid=dom.UUIDString(), state=state, autostart=autostart, interrupted=False),
        tuple(mac.get("address", "").lower() for mac in macs),
        frozenset(_cids(trees) | running),
    )


def growth(peer: libvirt.virConnect) -> dict[str, int]:
    """What the thin disks of the target's guests may still grow, by folder."""
    found: dict[str, int] = {}
    for _, stats in peer.getAllDomainStats(
        libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BLOCK,
        libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT,
    ):
        active = lookup.state_name(stats.get("state.state")) in facts.ACTIVE
        for disk in describe.block_stats(stats).values():
            has = disk.get("physical" if active else "allocation", 0)
            more = disk.get("capacity", 0) - has
            if more > 0 and disk.get("path", "").startswith("/"):
                folder = os.path.dirname(disk["path"])
                found[folder] = found.get(folder, 0) + more
    return found


def _links(peer: libvirt.virConnect, kind: str | None = None) -> list[str] | None:
    """The names of the host's network interfaces, or of its bridges only.

    None when libvirt cannot say; it then refuses the guest itself when it arrives.
    """
    try:
        found = peer.listAllInterfaces()
        if kind is not None:
            found = [link for link in found if f"type='{kind}'" in link.XMLDesc(0)]
        return sorted(link.name() for link in found) or None
    except libvirt.libvirtError:
        return None


def _machine(peer: libvirt.virConnect, report: GuestReport) -> MachineReport:
    wanted = (report.arch, report.machine, report.virt_type, 0)
    try:
        text = peer.getDomainCapabilities(None, *wanted)
    except libvirt.libvirtError as exc:
        return MachineReport(exc.get_error_message())
    root = ElementTree.fromstring(text)
    vcpu = root.find("vcpu")
    emulator = root.findtext("path")
    return MachineReport(
        max_vcpus=int(vcpu.get("max", 0)) if vcpu is not None else None,
        emulator=emulator,
        has_emulator=report.emulator in (None, emulator) or _runs(peer, report.emulator, wanted),
    )


def _runs(
    peer: libvirt.virConnect,
    emulator: str | None,
    wanted: tuple[str | None, str | None, str | None, int],
) -> bool:
    """Whether the host has an emulator of that path for the machine."""
    try:
        peer.getDomainCapabilities(emulator, *wanted)
    except libvirt.libvirtError:
        return False
    return True


def _cpu_error(peer: libvirt.virConnect, report: GuestReport) -> str | None:
    """Why the guest's CPU does not run there, in libvirt's words; None when it does."""
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
    """Every path of the source that matters at the same place on the target: disks that are no
    volumes, backing files, variables."""
    found: list[str | None] = []
    for disk in report.every_disk:
        if _is_there(disk):
            found += [] if disk.pool else [disk.source]
            found += [base.path for base in disk.chain]
    return list(dict.fromkeys(filter(None, [*found, report.nvram])))


def _is_there(disk: DiskReport) -> bool:
    """Whether it is in a file or device of this host that could be looked at."""
    return bool(disk.source) and disk.is_local and not disk.trouble


def _folders(
    peer: libvirt.virConnect, report: GuestReport, marks: Mapping[str, str]
) -> tuple[dict[str, PlaceReport], dict[str, int | None]]:
    """(what the target has of all places, the bytes that are free in each folder there)."""
    by_folder: dict[str, list[str]] = {}
    for path in paths(report):
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    bases = {base.path: base for disk in report.every_disk for base in disk.chain}
    blocks = {disk.source: disk for disk in report.every_disk if disk.type == "block"}
    seen: dict[str, PlaceReport] = {}
    free: dict[str, int | None] = {}
    for folder, inside in by_folder.items():
        compared: dict[str, Callable[[], bool]] = {}
        with remote_storage.opened(peer, folder) as pool:
            free[folder] = pool.info()[3] if pool is not None else None
            files = [path for path in inside if path not in blocks]
            proof = _proof(pool, marks.get(folder), folder) if files else (None, None)
            for path in files:
                seen[path] = _path(pool, path, proof)
                if pool and path in bases and seen[path].exists and not seen[path].shared:
                    seen[path], compared[path] = _base(peer, pool, seen[path], bases[path])
            for path in set(inside) & {*blocks}:
                seen[path] = _device(peer, pool, path, blocks[path])
        for path, same in compared.items():  # now that others can have the folder: it may take long
            seen[path] = replace(seen[path], same=same())
    for disk in report.every_disk:
        if disk.pool and not disk.trouble:
            mark = marks.get(os.path.dirname(disk.source or ""))
            found, room = volumes.there(peer, disk, disk.pool, mark)
            seen[disk.key] = found
            if room is not None:
                free[os.path.dirname(found.path or "")] = room
    return seen, free


def _proof(
    pool: libvirt.virStoragePool | None, mark: str | None, folder: str
) -> shared_folders.Proof:
    """(whether the target's folder is the same one as ours, why that is not known)."""
    if pool is None:  # there is none
        return False, None
    return shared_folders.same(pool, mark, shared_folders.file_system(folder))


def _path(
    pool: libvirt.virStoragePool | None, path: str, proof: shared_folders.Proof
) -> PlaceReport:
    """What the target has at a path."""
    exists = pool is not None and remote_storage.volume(pool, path) is not None
    shared, why = shared_folders.of(path, proof)
    if shared and not exists:
        shared, why = None, f"the target shares the folder, but does not show {path}"
    return PlaceReport(exists, shared, why, path, _name(pool))


def _name(pool: libvirt.virStoragePool | None) -> str | None:
    """The name of a pool of the user's."""
    return None if pool is None or remote_storage.is_passing(pool) else pool.name()


def _device(
    peer: libvirt.virConnect, pool: libvirt.virStoragePool | None, path: str, disk: DiskReport
) -> PlaceReport:
    """What the target has at the path of a block device. Without a pool of a kind that can be
    filled there it can only be proven shared."""
    exists = pool is not None and remote_storage.volume(pool, path) is not None
    name = _name(pool) if pool and pool_source.type_of(pool) in shared.FILLED_POOLS else None
    found = PlaceReport(exists, path=path, pool=name)
    mine = (disk.identity and disk.identity.device) or DeviceIdentity()
    why = shared.device(mine, block_devices.identity(peer, path))
    if why is None:
        return replace(found, shared=True)
    if name and not exists:
        return replace(found, shared=False)
    if not exists:
        why += ", and the target has no storage pool into which it could be copied"
    return replace(found, why=why)


def _base(
    peer: libvirt.virConnect,
    pool: libvirt.virStoragePool,
    seen: PlaceReport,
    base: BackingFile,
) -> tuple[PlaceReport, Callable[[], bool]]:
    """Of a backing file that is there: with ``coming``; and what says whether it is the same, for
    when the pool is closed.

    A file that our image cache named by its content need not be read; one that is shorter
    is still being copied.
    """
    if remote_storage.volume(pool, storage.coming(base.path)) is not None:
        return replace(seen, coming=True), lambda: True
    there = remote_storage.volume(pool, base.path)
    whole = there is not None and remote_storage.physical_bytes(there) == base.file_bytes
    if storage.by_content(base.path):
        return replace(seen, coming=not whole), lambda: True
    if there is None or not whole:
        return seen, lambda: False
    return seen, same_content.begin(there, base.path, host_uuid(peer))


def marked(report: GuestReport) -> AbstractContextManager[dict[str, str]]:
    """Puts a file with a name of its own beside each file of the guest for the block:
    {folder: name}, see shared_folders."""
    found: list[str] = [report.nvram] if report.nvram else []
    for disk in report.every_disk:
        if _is_there(disk) and disk.type == "file" and (disk.seed or not disk.read_only):
            found += [disk.source or "", *(base.path for base in disk.chain)]
    return shared_folders.put(found)
