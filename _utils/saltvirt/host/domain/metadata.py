"""Our record in a domain's metadata: what we made for it, and who is at work on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt.design.source import own_places
from saltvirt.host.connection import libvirt
from saltvirt.host.node import boot
from saltvirt.host.provision import existing_disk
from saltvirt.host.storage import files
from saltvirt.xml.domain import Domain
from saltvirt.xml.metadata import NAMESPACE

if TYPE_CHECKING:
    from saltvirt.xml.metadata import GuestRecord

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


def reverted(before: GuestRecord, now: GuestRecord) -> GuestRecord:
    """The record of a guest that a snapshot has put back. A snapshot brings back the record of its
    day: the entries are those of today, and disks made since stay the guest's own, with their
    names, though it does not have them now.

    before: its record until then. now: the one that the snapshot has brought back.
    """
    found = now.copy()
    found.entries = before.entries
    places = [own_places(own) for own in now.disks]
    for own in before.disks:
        if not any(own_places(own) & its for its in places):
            found.disks.append(own.copy())
    names = {named.name for named in now.devices.disks}
    for named in before.devices.disks:
        if named.name not in names:
            found.devices.version = before.devices.version
            found.devices.disks.append(named.copy())
    return found


def disk_paths(conn: libvirt.virConnect, trees: Iterable[ElementTree.Element]) -> set[str]:
    """The paths of the disks that records name, those of pools as far as they are there.

    A block device that no pool made for the guest was there before: an image was put onto it,
    and it is still the operator's.
    """
    found = set()
    for tree in trees:
        for disk in of_tree(tree).disks:
            path = disk.path
            if disk.pool:
                path = files.volume_path(conn, disk.pool, disk.volume)
            elif path and existing_disk.is_block(path):
                continue
            if path:
                found.add(path)
    return found


def write(dom: libvirt.virDomain, record: GuestRecord) -> None:
    """Puts the record into the domain's metadata, in place of the one that is there."""
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    if dom.isActive():
        flags = flags * bool(dom.isPersistent()) | libvirt.VIR_DOMAIN_AFFECT_LIVE
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    dom.setMetadata(kind, _plain(record), "saltvirt", NAMESPACE, flags)


def _plain(record: GuestRecord) -> str:
    """The record's text without our namespace: libvirt puts it in itself."""
    node = record.copy().need()
    for one in node.iter():
        one.tag = one.tag.rpartition("}")[2]
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
