"""Media and networks in a snapshot's definition that may no longer exist on the host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt
from saltvirt.host.storage import files, usage
from saltvirt.snapshot.tree import SnapshotNode

_DRIVES = ("cdrom", "floppy")
# snapshot states with which libvirt starts the guest
RUNS = ("running", "paused")


def refuse_without_networks(
    conn: libvirt.virConnect,
    domain: libvirt.virDomain,
    vir_snapshot: libvirt.virDomainSnapshot,
    target: SnapshotNode,
) -> None:
    """Raise Refused if the guest would be started on an inactive network.

    libvirt stops the guest first and then fails to start it.
    """
    if target.state not in RUNS:
        return
    for nic in ElementTree.fromstring(vir_snapshot.getXMLDesc(0)).iterfind(
        "domain/devices/interface"
    ):
        source = nic.find("source[@network]")
        network = source.get("network", "") if source is not None else None
        if network and not _is_active(conn, network):
            raise errors.Refused(
                f"cannot revert {domain.name()}: snapshot {target.name} uses the network "
                f"{network}, which is not active: start that network first"
            )


def _is_active(conn: libvirt.virConnect, network: str) -> bool:
    with contextlib.suppress(libvirt.libvirtError):
        return bool(conn.networkLookupByName(network).isActive())
    return False


def lost_media(conn: libvirt.virConnect, vir_snapshot: libvirt.virDomainSnapshot) -> dict[str, str]:
    """Return {drive: path} of the snapshot's media that no longer exist."""
    root = ElementTree.fromstring(vir_snapshot.getXMLDesc(0))
    return {target: path for _, target, path in _missing_media(conn, root)}


def empty_drives(
    conn: libvirt.virConnect, domain: libvirt.virDomain, vir_snapshot: libvirt.virDomainSnapshot
) -> None:
    """Remove missing media from the snapshot's definition, so that the guest can be started."""
    root = ElementTree.fromstring(vir_snapshot.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE))
    missing_media = list(_missing_media(conn, root))
    for disk, _, _ in missing_media:
        for source in disk.findall("source"):
            disk.remove(source)
    if missing_media:
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        if vir_snapshot.isCurrent():
            flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        domain.snapshotCreateXML(ElementTree.tostring(root, encoding="unicode"), flags)


def _missing_media(
    conn: libvirt.virConnect, root: ElementTree.Element
) -> Iterator[tuple[ElementTree.Element, str, str]]:
    """Yield (disk, target, path) of each drive whose medium is missing."""
    for definition in ("domain", "inactiveDomain"):
        for disk in root.iterfind(f"{definition}/devices/disk"):
            source, target = disk.find("source"), disk.find("target")
            if disk.get("device") in _DRIVES and source is not None and target is not None:
                path = source.get("file")
                if path and not usage.is_there(conn, files.real(path)):
                    yield disk, target.get("dev", ""), path
