"""Inspect the disks of a guest: which can be backed up, and which increments are possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from saltvirt import errors
from saltvirt.backup.model import chains, record
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, resize
from saltvirt.host.storage import files
from saltvirt.images import bitmaps
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.backup import Checkpoint
from saltvirt.xml.domain.domain import Domain

_SOURCES = ("file", "block", "volume")
# a busy QEMU answers faster; if QEMU hangs, libvirt would wait without a limit
_ANSWERS_S = 30
_SECTOR = 512


def inspect(conn: libvirt.virConnect, name: str) -> GuestInspection:
    """Inspect a guest. Raises NotFound, and OperationFailed if its QEMU hangs."""
    dom = lookup.lookup(conn, name)
    active = bool(dom.isActive())
    document = Domain.fromstring(dom.XMLDesc(0))
    existing = {checkpoint.getName(): checkpoint for checkpoint in dom.listAllCheckpoints(0)}
    own_checkpoints = {
        name: checkpoint for name, checkpoint in existing.items() if name.startswith(chains.PREFIX)
    }
    disks, skipped = [], {}
    for disk in document.disks:
        reason = _skip_reason(disk) or (None if active else _offline_problem(conn, disk))
        if reason:
            skipped[str(disk.target)] = reason
        else:
            disk_info = _disk(conn, dom, disk)
            if disk_info.size_bytes:
                disks.append(disk_info)
            else:
                skipped[str(disk.target)] = "its size is 0"
    bitmap_states = (
        _live_bitmaps(own_checkpoints, disks) if active else _offline_bitmaps(conn, document)
    )
    inspected = [replace(disk, bitmaps=bitmap_states.get(disk.target, {})) for disk in disks]
    checkpoint_names = tuple(sorted(existing))
    return GuestInspection(
        dom.UUIDString(), active, tuple(inspected), checkpoint_names, skipped, dom.name()
    )


def source_path(conn: libvirt.virConnect, disk: Disk) -> str:
    """Return the path of a disk's file or block device."""
    source = disk.source
    location = source.file or source.dev
    if source.pool:
        location = files.volume_path(conn, source.pool, source.volume)
    if not location:
        raise errors.Unsupported(f"cannot find the file of disk {disk.target}")
    return location


def _skip_reason(disk: Disk) -> str | None:
    if disk.removable_medium:
        return f"{chains.DRIVE}{disk.device}"
    if disk.read_only:
        return "it is read-only"
    if disk.transient:
        return "it is transient"
    if disk.device == "lun" or disk.type not in _SOURCES:
        return f"libvirt cannot back up a disk of type {disk.type} as {disk.device}"
    return None


def _offline_problem(conn: libvirt.virConnect, disk: Disk) -> str | None:
    """Return why a disk of a guest that is off cannot be read."""
    if is_encrypted(disk):
        return (
            "it is encrypted by libvirt, which gives the secret to a running guest only: start "
            "the guest"
        )
    source = disk.source
    location = files.volume_path(conn, source.pool, source.volume) if source.pool else None
    if location and not location.startswith("/"):
        return (
            f"its volume is on a server, {location}, to which only the running guest has access: "
            "start the guest"
        )
    return None


def is_encrypted(disk: Disk) -> bool:
    """Whether libvirt encrypts the disk, which QEMU exports in plain."""
    node = disk.need()
    return any(node.find(path) is not None for path in ("encryption", "source/encryption"))


def _disk(conn: libvirt.virConnect, dom: libvirt.virDomain, disk: Disk) -> InspectedDisk:
    target = str(disk.target)
    if disk.source.pool:
        files.require_pool(conn, disk.source.pool)
    try:
        size = connection.run_with_timeout(_ANSWERS_S, _size, conn, dom, disk)
    except TimeoutError:
        raise errors.OperationFailed(
            f"the QEMU of {dom.name()} does not answer libvirt within {_ANSWERS_S} s: is it "
            f"stopped, or does its storage hang? See `virsh domcontrol {dom.name()}` on the host"
        ) from None
    # QEMU exports whole sectors
    size = -(-size // _SECTOR) * _SECTOR
    format = disk.driver_type or "raw"
    return InspectedDisk(
        target, size, disk.source.location() or "", format,
        encrypted=is_encrypted(disk),
        old=format == record.QCOW2 and bitmaps.is_old(source_path(conn, disk)),
    )  # fmt: skip


def _size(conn: libvirt.virConnect, dom: libvirt.virDomain, disk: Disk) -> int:
    """Return the size of a disk in bytes. libvirt finds the volume of a pool only while the guest
    runs."""
    if disk.type == "volume" and not dom.isActive():
        return resize.size_of(conn, dom, str(disk.target))
    return int(dom.blockInfo(str(disk.target), 0)[0])


def _live_bitmaps(
    own_checkpoints: dict[str, libvirt.virDomainCheckpoint], disks: list[InspectedDisk]
) -> dict[str, dict[str, str]]:
    """Map each disk to its bitmaps in the running QEMU. libvirt reports the changed size of a
    bitmap only if it is recording."""
    states: dict[str, dict[str, str]] = {disk.target: {} for disk in disks}
    for name, checkpoint in own_checkpoints.items():
        for disk, good in _checkpoint_disks(checkpoint):
            if disk in states:
                states[disk][name] = chains.GOOD if good else chains.INCONSISTENT
    return states


def _checkpoint_disks(checkpoint: libvirt.virDomainCheckpoint) -> Iterator[tuple[str, bool]]:
    """Yield the disks of a checkpoint, and whether their bitmaps are recording."""
    try:
        text = checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_SIZE)
    except libvirt.libvirtError:
        text = checkpoint.getXMLDesc(libvirt.VIR_DOMAIN_CHECKPOINT_XML_NO_DOMAIN)
    for disk in Checkpoint.fromstring(text).disks:
        if disk.checkpoint == "bitmap":
            yield str(disk.name), disk.size_bytes is not None


def _offline_bitmaps(conn: libvirt.virConnect, document: Domain) -> dict[str, dict[str, str]]:
    """Map each disk of a guest that is off to the bitmaps in its file."""
    states = {}
    for disk in document.disks:
        if not (_skip_reason(disk) or _offline_problem(conn, disk)) and disk.driver_type == "qcow2":
            bitmap_flags = bitmaps.read(source_path(conn, disk))
            states[str(disk.target)] = {name: _state(flags) for name, flags in bitmap_flags.items()}
    return states


def _state(flags: list[str]) -> str:
    if "in-use" in flags:
        return chains.INCONSISTENT
    return chains.GOOD if "auto" in flags else chains.DISABLED
