"""Our record in a domain's metadata: what we made for it, and who is at work on it."""

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
    from saltvirt.xml.domain.metadata import GuestRecord

# entries that were given to a guest under its name: who removes by them must find no other
_MARKS = ("deployment", "operation")


def of_tree(tree: ElementTree.Element) -> GuestRecord:
    """The GuestRecord in a domain's parsed XML; false when we did not make it."""
    return Domain(tree).record


def of_domain(dom: libvirt.virDomain) -> GuestRecord:
    """The GuestRecord of a virDomain; false when we did not make it."""
    return Domain.fromstring(dom.XMLDesc(0)).record


def unmark(record: GuestRecord) -> None:
    """Takes the marks from a record that is to be another guest's, or one of another name."""
    record.entries = [entry for entry in record.entries if entry.key not in _MARKS]


def reverted(previous: GuestRecord, restored: GuestRecord) -> GuestRecord:
    """The record of a guest that a snapshot has put back. A snapshot brings back the record of its
    day: the entries are those of today, and disks made since stay the guest's own, with their
    names, though it does not have them now.

    previous: its record until then. restored: the one that the snapshot has brought back.
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


def disk_paths(conn: libvirt.virConnect, trees: Iterable[ElementTree.Element]) -> set[str]:
    """The paths of the disks that records name, those of pools as far as they are there.

    A block device that no pool made for the guest was there before: an image was put onto it,
    and it is still the operator's.
    """
    paths = set()
    for tree in trees:
        for disk in of_tree(tree).disks:
            path = disk.path
            if disk.pool:
                path = files.volume_path(conn, disk.pool, disk.volume)
            elif path and existing_disk.is_block(path):
                continue
            if path:
                paths.add(path)
    return paths


def write(dom: libvirt.virDomain, record: GuestRecord) -> None:
    """Puts the record into the domain's metadata, in place of the one that is there."""
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    if dom.isActive():
        flags = flags * bool(dom.isPersistent()) | libvirt.VIR_DOMAIN_AFFECT_LIVE
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    dom.setMetadata(kind, _without_namespace(record), "saltvirt", NAMESPACE, flags)


def _without_namespace(record: GuestRecord) -> str:
    """The record's text without our namespace: libvirt puts it in itself."""
    node = record.copy().need()
    for element in node.iter():
        element.tag = element.tag.rpartition("}")[2]
    return ElementTree.tostring(node, encoding="unicode")


def _started(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[19]


def worker() -> str:
    """What tells this process from any other, past and future, on this host."""
    return f"{os.getpid()}:{_started(os.getpid())}:{boot.current()}"


def works(token: str) -> bool:
    """True while the process that :func:`worker` described is alive."""
    pid, _, rest = token.partition(":")
    try:
        return rest == f"{_started(int(pid))}:{boot.current()}"
    except (OSError, ValueError, IndexError):
        return False
