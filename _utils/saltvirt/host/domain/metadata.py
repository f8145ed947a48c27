"""Salt Virt's record in a domain's metadata: what was created for the guest, and which process
works on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt.design.source import own_locations
from saltvirt.host.connection import libvirt
from saltvirt.host.provision import existing_disk
from saltvirt.host.storage import files
from saltvirt.system import boot
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import NAMESPACE

if TYPE_CHECKING:
    from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

# entries that belong to the guest's name: a removal by such an entry must find no other guest
_MARKS = ("deployment", "operation")


def of_tree(tree: ElementTree.Element) -> GuestRecord:
    """Return the GuestRecord in a domain's parsed XML; false if Salt Virt did not create the
    guest."""
    return Domain(tree).record


def of_domain(dom: libvirt.virDomain) -> GuestRecord:
    """Return the GuestRecord of a virDomain; false if Salt Virt did not create the guest."""
    return Domain.fromstring(dom.XMLDesc(0)).record


def unmark(record: GuestRecord) -> None:
    """Remove the marks from a record that is to become another guest's, or that of another name."""
    record.entries = [entry for entry in record.entries if entry.key not in _MARKS]


def reverted(previous: GuestRecord, restored: GuestRecord) -> GuestRecord:
    """Return the record of a guest after a revert to a snapshot.

    A snapshot restores the record of its own time. The result has the current entries, and disks
    that were added since then remain the guest's own, with their names, though the guest does not
    have them now. previous: the record before the revert. restored: the record that the snapshot
    has restored.
    """
    record = restored.copy()
    record.entries = previous.entries
    restored_places = [own_locations(disk) for disk in restored.disks]
    for disk in previous.disks:
        if not any(own_locations(disk) & locations for locations in restored_places):
            record.disks.append(disk.copy())
    names = {device.name for device in restored.devices.disks}
    for device in previous.devices.disks:
        if device.name not in names:
            record.devices.version = previous.devices.version
            record.devices.disks.append(device.copy())
    return record


def disk_path(conn: libvirt.virConnect, own_disk: OwnDisk) -> str | None:
    """Return the path of a recorded disk; None for a volume that does not exist."""
    if own_disk.pool:
        return files.volume_path(conn, own_disk.pool, own_disk.volume)
    return own_disk.path


def disk_paths(conn: libvirt.virConnect, trees: Iterable[ElementTree.Element]) -> set[str]:
    """Return the paths of the disks in the records; disks in pools only if they exist.

    A block device that was not created in a pool existed before: an image was written to it, and it
    still belongs to the operator.
    """
    paths = set()
    for tree in trees:
        for disk in of_tree(tree).disks:
            path = disk_path(conn, disk)
            if path and (disk.pool or not existing_disk.is_block(path)):
                paths.add(path)
    return paths


def write(dom: libvirt.virDomain, record: GuestRecord) -> None:
    """Replace the record in the domain's metadata."""
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    if dom.isActive():
        flags = flags * bool(dom.isPersistent()) | libvirt.VIR_DOMAIN_AFFECT_LIVE
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    dom.setMetadata(kind, _without_namespace(record), "saltvirt", NAMESPACE, flags)


def _without_namespace(record: GuestRecord) -> str:
    """Return the record's text without our namespace, which libvirt adds itself."""
    node = record.copy().need()
    for element in node.iter():
        element.tag = element.tag.rpartition("}")[2]
    return ElementTree.tostring(node, encoding="unicode")


def _started(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[19]


def worker() -> str:
    """Return a token that distinguishes this process from any other on this host, past and
    future."""
    return f"{os.getpid()}:{_started(os.getpid())}:{boot.current()}"


def works(token: str) -> bool:
    """Return whether the process that :func:`worker` described is alive."""
    pid, _, rest = token.partition(":")
    try:
        return rest == f"{_started(int(pid))}:{boot.current()}"
    except (OSError, ValueError, IndexError):
        return False
