"""What of a guest can be backed up, and which increments its disks could still give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from saltvirt import errors
from saltvirt.backups import chains, record
from saltvirt.backups.answers import GuestLook, LookedDisk
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, resize
from saltvirt.host.storage import files
from saltvirt.images import bitmaps
from saltvirt.xml.backup import Checkpoint
from saltvirt.xml.disk import Disk
from saltvirt.xml.domain import Domain

_SOURCES = ("file", "block", "volume")
# a QEMU that is busy answers in less; to one that stands still libvirt would wait for ever
_ANSWERS_S = 30
_SECTOR = 512


def look(conn: libvirt.virConnect, name: str) -> GuestLook:
    """The GuestLook of a guest. Raises NotFound, OperationFailed where its QEMU stands still."""
    dom = lookup.lookup(conn, name)
    active = bool(dom.isActive())
    document = Domain.fromstring(dom.XMLDesc(0))
    there = {one.getName(): one for one in dom.listAllCheckpoints(0)}
    ours = {name: one for name, one in there.items() if name.startswith(chains.PREFIX)}
    disks, skipped = [], {}
    for disk in document.disks:
        why = _skipped(disk) or (None if active else _locked(conn, disk))
        if why:
            skipped[str(disk.target)] = why
        else:
            looked = _disk(conn, dom, disk)
            if looked.size_bytes:
                disks.append(looked)
            else:
                skipped[str(disk.target)] = "it has a size of 0"
    recorded = _recording(ours, disks) if active else _on_disk(conn, document)
    found = [_with(disk, recorded.get(disk.target, {})) for disk in disks]
    known = tuple(sorted(there))
    return GuestLook(dom.UUIDString(), active, tuple(found), known, skipped, dom.name())


def path(conn: libvirt.virConnect, disk: Disk) -> str:
    """The path of a disk's file or block device."""
    source = disk.source
    found = source.file or source.dev
    if source.pool:
        found = files.volume_path(conn, source.pool, source.volume)
    if not found:
        raise errors.Unsupported(f"where the disk {disk.target} is cannot be found")
    return found


def _skipped(disk: Disk) -> str | None:
    if disk.removable_medium:
        return f"{chains.DRIVE}{disk.device}"
    if disk.read_only:
        return "it is read-only"
    if disk.transient:
        return "it is transient"
    if disk.device == "lun" or disk.type not in _SOURCES:
        return f"a disk of type {disk.type} as {disk.device} cannot be backed up by libvirt here"
    return None


def _locked(conn: libvirt.virConnect, disk: Disk) -> str | None:
    """Why a disk of a guest that is off cannot be read."""
    if is_encrypted(disk):
        return "it is encrypted by libvirt, whose secret a running guest alone is given: start it"
    source = disk.source
    found = files.volume_path(conn, source.pool, source.volume) if source.pool else None
    if found and not found.startswith("/"):
        return f"its volume is on a server, {found}, to which a running guest alone has access"
    return None


def is_encrypted(disk: Disk) -> bool:
    """Whether libvirt encrypts a disk: QEMU shows it in plain."""
    node = disk.need()
    return any(node.find(path) is not None for path in ("encryption", "source/encryption"))


def _disk(conn: libvirt.virConnect, dom: libvirt.virDomain, disk: Disk) -> LookedDisk:
    target = str(disk.target)
    if disk.source.pool:
        files.require_pool(conn, disk.source.pool)
    try:
        size = connection.within(_ANSWERS_S, _size, conn, dom, disk)
    except TimeoutError:
        raise errors.OperationFailed(
            f"the QEMU of {dom.name()} does not answer libvirt within {_ANSWERS_S} s: is it "
            f"stopped, or does its storage hang? `virsh domcontrol {dom.name()}` there says for "
            "how long"
        ) from None
    # QEMU shows whole sectors
    size = -(-size // _SECTOR) * _SECTOR
    format = disk.driver_type or "raw"
    return LookedDisk(
        target, size, disk.source.place() or "", format,
        encrypted=is_encrypted(disk),
        old=format == record.QCOW2 and bitmaps.is_old(path(conn, disk)),
    )  # fmt: skip


def _size(conn: libvirt.virConnect, dom: libvirt.virDomain, disk: Disk) -> int:
    """The size of a disk in bytes. libvirt finds a pool's volume only for a guest that runs."""
    if disk.type == "volume" and not dom.isActive():
        return resize.size_of(conn, dom, str(disk.target))
    return int(dom.blockInfo(str(disk.target), 0)[0])


def _with(disk: LookedDisk, bitmaps: dict[str, str]) -> LookedDisk:
    return replace(disk, bitmaps=bitmaps)


def _recording(
    ours: dict[str, libvirt.virDomainCheckpoint], disks: list[LookedDisk]
) -> dict[str, dict[str, str]]:
    """Disk to the bitmaps of its checkpoints, as the QEMU that runs has them: libvirt tells how
    much changed since only where the bitmap records."""
    found: dict[str, dict[str, str]] = {disk.target: {} for disk in disks}
    for name, checkpoint in ours.items():
        for disk, good in _sized(checkpoint):
            if disk in found:
                found[disk][name] = chains.GOOD if good else chains.INCONSISTENT
    return found


def _sized(checkpoint: libvirt.virDomainCheckpoint) -> Iterator[tuple[str, bool]]:
    """The disks of a checkpoint, and whether its bitmap records."""
    try:
        text = checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_SIZE)
    except libvirt.libvirtError:
        text = checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN)
    for disk in Checkpoint.fromstring(text).disks:
        if disk.checkpoint == "bitmap":
            yield str(disk.name), disk.size_bytes is not None


def _on_disk(conn: libvirt.virConnect, document: Domain) -> dict[str, dict[str, str]]:
    """The same of a guest that is off, as its files have them."""
    found = {}
    for disk in document.disks:
        if not (_skipped(disk) or _locked(conn, disk)) and disk.driver_type == "qcow2":
            there = bitmaps.of(path(conn, disk))
            found[str(disk.target)] = {name: _state(flags) for name, flags in there.items()}
    return found


def _state(flags: list[str]) -> str:
    if "in-use" in flags:
        return chains.INCONSISTENT
    return chains.GOOD if "auto" in flags else chains.DISABLED
