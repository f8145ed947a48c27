"""The definition of the guest in a backup: as libvirt stores it, with the disks that are backed
up."""

from __future__ import annotations

from saltvirt.host.connection import libvirt
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain

# children of a disk that exist only while the guest runs
_LIVE = ("alias", "address", "mirror", "backingStore", "privateData")


def build(dom: libvirt.virDomain) -> str:
    """Return the stored definition, with the disks of the running guest.

    The live definition is not suitable: it has the CPU of this host, the present balloon size, and
    names that are valid on this host only.
    """
    stored = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    if dom.isActive():
        for disk in Domain.fromstring(dom.XMLDesc(0)).disks:
            if not disk.removable_medium:
                _put(stored, disk)
    return stored.tostring()


def _put(stored: Domain, disk: Disk) -> None:
    existing = next(
        (candidate for candidate in stored.disks if candidate.target == disk.target), None
    )
    if existing is None:
        stored.disks.append(_stored_form(disk))
    elif _differs(existing, disk):
        built = _stored_form(disk)
        if existing.address:
            built.need().append(existing.copy().address.need())
        stored.disks.remove(existing)
        stored.disks.append(built)


def _differs(first: Disk, second: Disk) -> bool:
    return (first.source.location(), first.driver_type) != (
        second.source.location(),
        second.driver_type,
    )


def _stored_form(disk: Disk) -> Disk:
    """Remove what exists only while the guest runs; libvirt assigns a new address."""
    built = disk.copy()
    node = built.need()
    for child in [element for element in node if element.tag in _LIVE]:
        node.remove(child)
    if built.source:
        built.source.index = None
    return built


def excluded_devices(dom: libvirt.virDomain) -> dict[str, str]:
    """Map parts of the guest that are not backed up to the reason."""
    model = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    reasons = {
        str(filesystem.target): f"a folder of the host, {filesystem.source_dir}: back it up there"
        for filesystem in model.filesystems
    }
    running = {disk.target for disk in Domain.fromstring(dom.XMLDesc(0)).disks}
    for disk in model.disks:
        if disk.target not in running:
            reasons[str(disk.target)] = "it takes effect at the next start of the guest"
    return reasons
