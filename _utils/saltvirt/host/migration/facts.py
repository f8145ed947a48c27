"""What a migration's checks must know of the guest, on its host, and of the other host.

Both reports are plain dicts. A fact that could not be found out is None.
"""

import contextlib
import os
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt, translated, unless_gone
from saltvirt.host.domain import describe, lookup, metadata, placement_facts
from saltvirt.host.migration import (
    block_devices,
    guest_disks,
    remote_storage,
    same_content,
    shared_folders,
    volumes,
)
from saltvirt.host.node import hugepages
from saltvirt.host.storage import files
from saltvirt.migration import shared, storage
from saltvirt.placement import facts

METADATA = "{https://saltproject.io/xmlns/salt-virt/1}guest"
JOBS = {1: "a job", 2: "a migration or save", 3: "a job that is over", 4: "a job", 5: "a job"}
# where libvirt's QEMU driver keeps the variables of guests' firmware
_VARIABLES = "/var/lib/libvirt/qemu/nvram"


def guest(dom):
    """The guest's report: what it is, has and does. Opens no disk for writing.

    ``memory_kib`` is its maximum; ``cpu`` the XML of the CPU it runs with; ``own_files``
    what our record in its metadata says we made for it.
    """
    conn = dom.connect()
    with translated():
        active = bool(dom.isActive())
        root = ElementTree.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        return {
            "name": dom.name(),
            "uuid": dom.UUIDString(),
            "host": conn.getHostname(),
            "host_uuid": host_uuid(conn),
            "active": active,
            "state": lookup.state(dom),
            "persistent": bool(dom.isPersistent()),
            "autostart": bool(dom.isPersistent() and dom.autostart()),
            "job": _job(dom) if active else None,
            "managed_save": bool(dom.hasManagedSaveImage()),
            "snapshots": dom.snapshotNum(),
            "checkpoints": _checkpoints(dom),
            "hypervisor": conn.getType(),
            "qemu": conn.getVersion(),
            "libvirt": conn.getLibVersion(),
            **_machine(root),
            **_devices(root),
            **_storage(dom, root),
        }


def _job(dom):
    """What libvirt is doing to the domain, or None."""
    info = dom.jobInfo()
    return JOBS.get(info[0]) if info[0] in (1, 2) else None


def _checkpoints(dom):
    with contextlib.suppress(libvirt.libvirtError, AttributeError):
        return len(dom.listAllCheckpoints())
    return 0


def _machine(root):
    kind = root.find("os/type")
    cpu = root.find("cpu")
    return {
        "memory_kib": int(root.findtext("maxMemory") or root.findtext("memory")),
        "vcpus": int(root.findtext("vcpu", "1")),
        "page_kib": placement_facts.page_kib(root),
        "arch": kind.get("arch"),
        "machine": kind.get("machine"),
        "virt_type": root.get("type"),
        "emulator": root.findtext("devices/emulator"),
        "nvram": _variables(root),
        "cpu": ElementTree.tostring(cpu, encoding="unicode") if cpu is not None else None,
    }


def _variables(root):
    """The file of the firmware's variables, or None.

    Where libvirt chooses the firmware, only a running domain's XML names the file.
    """
    named = root.findtext("os/nvram")
    if named or root.find("os").get("firmware") != "efi":
        return named
    for suffix in ("fd", "qcow2"):
        path = os.path.join(_VARIABLES, f"{root.findtext('name')}_VARS.{suffix}")
        if os.path.exists(path):
            return path
    return None


def _snapshots(dom):
    """The XML of the guest's snapshots, parsed."""
    found = []
    for snapshot in dom.listAllSnapshots():
        with unless_deleted():
            found.append(ElementTree.fromstring(snapshot.getXMLDesc(0)))
    return found


@contextlib.contextmanager
def unless_deleted():
    """Passes over a snapshot that went since it was listed."""
    try:
        yield
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT:
            raise


def _storage(dom, root):
    """``disks``, and ``apart``: files of snapshots on which no disk stands.

    The guest's own files are those of our record, and those on which a snapshot of it set an
    overlay.
    """
    conn, snapshots = dom.connect(), _snapshots(dom)
    own = metadata.disk_paths(conn, [root]).union(*map(guest_disks.before, snapshots))
    disks = guest_disks.read(root, conn, {files.real(path) for path in own})
    seen = {disk["source"] for disk in disks} | {b["path"] for d in disks for b in d["chain"]}
    theirs = set().union(*map(guest_disks.of_snapshot, snapshots))
    known = {files.real(path) for path in seen if path}
    return {"disks": disks, "apart": sorted(p for p in theirs if files.real(p) not in known)}


def _devices(root):
    return {
        "nics": [_nic(nic) for nic in root.iterfind("devices/interface")],
        "hostdevs": [_hostdev(dev) for dev in root.iterfind("devices/hostdev")],
        "filesystems": [fs.find("target").get("dir") for fs in root.iterfind("devices/filesystem")],
        "tpm": root.find("devices/tpm/backend[@type='emulator']") is not None,
    }


def _nic(nic):
    source = nic.find("source")
    kind = nic.get("type")
    name = (source.get(kind) or source.get("dev")) if source is not None else None
    return {"type": kind, "source": name, "mac": nic.find("mac").get("address").lower()}


def _hostdev(dev):
    address = dev.find("source/address")
    parts = [f"{k}={v}" for k, v in sorted(address.attrib.items())] if address is not None else []
    return " ".join([dev.get("type") or dev.get("mode"), *parts])


def host_uuid(conn):
    """What tells one host from another: libvirt's, made from the BIOS or its own file."""
    root = ElementTree.fromstring(conn.getCapabilities())
    return root.findtext("host/uuid")


def target(peer, report, marks=None):
    """The other host's report, as far as this guest needs it.

    peer: the connection to it; report: the guest's; marks: {folder: name of a file that
    the source has just put there}, which proves shared storage when the target sees it.
    """
    with translated():
        found = {
            "hostname": peer.getHostname(),
            "host_uuid": host_uuid(peer),
            "hypervisor": peer.getType(),
            "qemu": peer.getVersion(),
            "libvirt": peer.getLibVersion(),
            "domains": domains(peer),
            "growth": growth(peer),
            "hugepages": hugepages.huge(
                ElementTree.fromstring(peer.getCapabilities()), peer.getInfo()[1] * 1024
            ),
            "cpus": peer.getInfo()[2],
            "memory_kib": peer.getInfo()[1] * 1024,
            "networks": {net.name(): bool(net.isActive()) for net in peer.listAllNetworks()},
            "links": _links(peer),
            "bridges": _links(peer, "bridge"),
            **_machine_support(peer, report),
            "cpu_error": _cpu_error(peer, report),
        }
    return {**found, **_folders(peer, report, marks or {})}


def domains(peer):
    """The target's guests, and what they are promised."""
    flags = libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART
    autostarted = {dom.UUIDString() for dom in peer.listAllDomains(flags)}
    found = []
    for dom in peer.listAllDomains():
        with unless_gone():
            found.append({**_domain(dom), "autostart": dom.UUIDString() in autostarted})
    return found


def _domain(dom):
    active = lookup.state(dom) in facts.ACTIVE
    trees = placement_facts.definitions(dom, active)
    macs = [mac.get("address").lower() for mac in trees[-1].iterfind("devices/interface/mac")]
    return {
        **placement_facts.read(dom.name(), trees).to_answer(),
        "name": dom.name(),
        "uuid": dom.UUIDString(),
        "state": lookup.state(dom),
        "macs": macs,
    }


def growth(peer):
    """What the thin disks of the target's guests may still grow, by folder."""
    found = {}
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


def _links(peer, kind=None):
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


def _machine_support(peer, report):
    """Whether the target has this machine type, for how many CPUs, and by which ``emulator``; and
    whether it has the guest's own one, too."""
    wanted = (report["arch"], report["machine"], report["virt_type"], 0)
    try:
        text = peer.getDomainCapabilities(None, *wanted)
    except libvirt.libvirtError as exc:
        why = exc.get_error_message()
        return {"machine_error": why, "max_vcpus": None, "emulator": None, "has_emulator": None}
    root = ElementTree.fromstring(text)
    vcpu = root.find("vcpu")
    emulator = root.findtext("path")
    same = report["emulator"] in (None, emulator)
    return {
        "machine_error": None,
        "max_vcpus": int(vcpu.get("max")) if vcpu is not None else None,
        "emulator": emulator,
        "has_emulator": same or _runs(peer, report["emulator"], wanted),
    }


def _runs(peer, emulator, wanted):
    """Whether the host has an emulator of that path for the machine."""
    try:
        peer.getDomainCapabilities(emulator, *wanted)
    except libvirt.libvirtError:
        return False
    return True


def _cpu_error(peer, report):
    """Why the guest's CPU does not run there, in libvirt's words; None when it does."""
    if report["cpu"] is None or ElementTree.fromstring(report["cpu"]).get("mode") == "maximum":
        return None
    flags = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        peer.compareHypervisorCPU(
            None, report["arch"], report["machine"], report["virt_type"], report["cpu"], flags
        )
    except libvirt.libvirtError as exc:
        unknown = (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_CONFIG_UNSUPPORTED)
        if exc.get_error_code() in unknown:
            return None
        return exc.get_error_message()
    return None


def paths(report):
    """Every path of the source that matters at the same place on the target: disks that are no
    volumes, backing files, variables."""
    found = []
    for disk in report["disks"]:
        if _is_local(disk):
            found += [] if disk.get("pool") else [disk["source"]]
            found += [base["path"] for base in disk["chain"]]
    if report["nvram"]:
        found.append(report["nvram"])
    return list(dict.fromkeys(found))


def _is_local(disk):
    return bool(disk["source"]) and disk["type"] in ("file", "block") and not disk.get("trouble")


def _folders(peer, report, marks):
    """``paths``: what the target has of them, see saltvirt.migration.storage; ``free_bytes`` of
    each folder there."""
    by_folder = {}
    for path in paths(report):
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    bases = {base["path"]: base for disk in report["disks"] for base in disk["chain"]}
    blocks = {disk["source"] for disk in report["disks"] if disk["type"] == "block"}
    seen, free = {}, {}
    for folder, inside in by_folder.items():
        with remote_storage.opened(peer, folder) as pool:
            free[folder] = pool.info()[3] if pool is not None else None
            files = [path for path in inside if path not in blocks]
            proof = _proof(pool, marks.get(folder), folder) if files else None
            for path in files:
                seen[path] = _path(pool, path, proof, bases.get(path))
            for path in set(inside) & blocks:
                seen[path] = _device(peer, pool, path, report)
        for path in files:  # now that others can have the folder: to read may take long
            if callable(seen[path].get("same")):
                seen[path]["same"] = seen[path]["same"]()
    _volumes(peer, report, marks, seen, free)
    return {"paths": seen, "free_bytes": free}


def _volumes(peer, report, marks, seen, free):
    """Adds the same of the disks that are volumes of pools."""
    for disk in report["disks"]:
        if disk.get("pool") and not disk.get("trouble"):
            mark = marks.get(os.path.dirname(disk["source"]))
            found, room = volumes.there(peer, disk, mark)
            seen[storage.key(disk)] = found
            if room is not None:
                free[os.path.dirname(found["path"])] = room


def _proof(pool, mark, folder):
    """(whether the target's folder is the same one as ours, why that is not known)."""
    if pool is None:  # there is none
        return False, None
    return shared_folders.same(pool, mark, shared_folders.file_system(folder))


def _path(pool, path, proof, base):
    """What the target has at a path. base: what the source has there, of a backing file."""
    there = remote_storage.volume(pool, path) if pool is not None else None
    exists, (shared, why) = there is not None, shared_folders.of(path, proof)
    if shared and not exists:
        shared, why = None, f"the target shares the folder, but does not show {path}"
    found = {"exists": exists, "shared": shared, "why": why, "path": path, "pool": _name(pool)}
    if base and exists and not shared:
        found.update(_base(pool, there, base, host_uuid(pool.connect())))
    return found


def _name(pool):
    """The name of a pool of the user's."""
    return None if pool is None or remote_storage.is_passing(pool) else pool.name()


def _device(peer, pool, path, report):
    """What the target has at the path of a block device. Without a pool of a kind that can be
    filled there it can only be proven shared."""
    disk = next(disk for disk in report["disks"] if disk["source"] == path)
    exists = pool is not None and remote_storage.volume(pool, path) is not None
    name = _name(pool) if pool and volumes.kind(pool) in shared.FILLED_POOLS else None
    found = {"exists": exists, "path": path, "pool": name}
    why = shared.device(disk["identity"]["device"], block_devices.identity(peer, path))
    if why is None:
        return {**found, "shared": True, "why": None}
    if name and not exists:
        return {**found, "shared": False, "why": None}
    if not exists:
        why += ", and the target has no storage pool into which it could be copied"
    return {**found, "shared": None, "why": why}


def _base(pool, there, base, uuid):
    """Of a backing file that is there: ``same``, ``coming``; see saltvirt.migration.storage.

    A file that our image cache named by its content need not be read; one that is shorter
    is still being copied. ``same`` may be a callable that looks, for when the pool is closed.
    """
    path = base["path"]
    if remote_storage.volume(pool, storage.coming(path)) is not None:
        return {"same": True, "coming": True}
    whole = remote_storage.physical_bytes(there) == base["file_bytes"]
    if storage.by_content(path):
        return {"same": True, "coming": not whole}
    return {"same": same_content.begin(there, path, uuid) if whole else False}


def marked(report):
    """Puts a file with a name of its own beside each file of the guest for the block:
    {folder: name}, see migrate_marks."""
    found = [report["nvram"]] if report["nvram"] else []
    for disk in report["disks"]:
        if _is_local(disk) and disk["type"] == "file" and not disk["read_only"]:
            found += [disk["source"], *(base["path"] for base in disk["chain"])]
    return shared_folders.put(found)
