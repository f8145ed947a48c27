"""The definition that a backup has of its guest: as libvirt stores it, with the disks that are
backed up."""

from __future__ import annotations

from saltvirt.host.connection import libvirt
from saltvirt.xml.disk import Disk
from saltvirt.xml.domain import Domain

# children of a disk that only a running guest has
_LIVE = ("alias", "address", "mirror", "backingStore", "privateData")


def of(dom: libvirt.virDomain) -> str:
    """The stored definition: what runs has the CPU of this host, the present size of the balloon,
    and names that mean nothing elsewhere. Of a guest that runs the disks are those of now, as they
    are what is backed up."""
    stored = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    if dom.isActive():
        for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
            if not disk.removable_medium:
                _put(stored, disk)
    return stored.tostring()


def _put(stored: Domain, disk: Disk) -> None:
    there = next((one for one in stored.disks if one.target == disk.target), None)
    if there is None:
        stored.disks.append(_plain(disk))
    elif _is_other(there, disk):
        built = _plain(disk)
        if there.address:
            built.need().append(there.copy().address.need())
        stored.disks.remove(there)
        stored.disks.append(built)


def _is_other(one: Disk, two: Disk) -> bool:
    return (one.source.place(), one.driver_type) != (two.source.place(), two.driver_type)


def _plain(disk: Disk) -> Disk:
    """As it is stored: libvirt finds it an address."""
    built = disk.copy()
    node = built.need()
    for child in [one for one in node if one.tag in _LIVE]:
        node.remove(child)
    if built.source:
        built.source.index = None
    return built


def beside(dom: libvirt.virDomain) -> dict[str, str]:
    """What belongs to the guest and is no disk: its name to why it is in no backup."""
    model = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    found = {
        str(one.target): f"a folder of the host, {one.source_dir}: back that up there"
        for one in model.filesystems
    }
    running = {disk.target for disk in Domain.fromstring(dom.XMLDesc(0)).disks}
    for disk in model.disks:
        if disk.target not in running:
            found[str(disk.target)] = "the running guest does not have it before its next start"
    return found
