"""The drive from which a new guest's cloud-init reads, and taking it away again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, metadata
from saltvirt.host.storage import deletion
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.xml.devices.disk import Disk

# a name that no request can give to a disk
NAME = "seed drive"
FOLDER = "_seed"


def path(images_dir: str, guest: str) -> str:
    """Where a guest's volume lies; no guest has a name that begins with ``_``."""
    return os.path.join(os.path.abspath(images_dir), FOLDER, f"{guest}.iso")


def is_seed_path(path_text: str, guest: str) -> bool:
    """Whether a path is that of the guest's volume, in this host's folder of images or in that of
    the host from which the guest came."""
    folder, name = os.path.split(path_text)
    return name == f"{guest}.iso" and os.path.basename(folder) == FOLDER


def _drive(dom: libvirt.virDomain, volume: str, flags: int) -> Disk | None:
    """The guest's drive with the volume in it, or None."""
    tree = Domain.fromstring(dom.XMLDesc(flags))
    return next((disk for disk in tree.disks if disk.source.file == volume), None)


def _change(dom: libvirt.virDomain, volume: str, flag: int, xml_flag: int) -> None:
    drive = _drive(dom, volume, xml_flag)
    if drive:
        drive.source = None
        dom.updateDeviceFlags(drive.tostring(), flag | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE)


def eject(conn: libvirt.virConnect, guest: str, images_dir: str) -> bool:
    """Takes the volume out of the guest's drive and deletes it: it holds a private key.

    Returns True when there was one. Raises NotFound, OperationFailed.
    """
    dom = lookup.lookup(conn, guest)
    volumes = {path(images_dir, guest), *_recorded_paths(dom)}
    ejections = [_eject(conn, dom, volume) for volume in sorted(volumes)]
    return any(ejections)


def _recorded_paths(dom: libvirt.virDomain) -> set[str]:
    """The volumes that the guest's record names. A guest that came from another host has its volume
    at the path that it had there, whatever folder of images this host has."""
    with translated(f"read the record of {dom.name()}"):
        paths = [disk.path or "" for disk in metadata.of_domain(dom).disks]
    return {
        path_text for path_text in paths if os.path.basename(os.path.dirname(path_text)) == FOLDER
    }


def _eject(conn: libvirt.virConnect, dom: libvirt.virDomain, volume: str) -> bool:
    """Whether that volume was there."""
    guest = dom.name()
    with translated(f"take the volume for cloud-init from {guest}"):
        if dom.isActive():
            _change(dom, volume, libvirt.VIR_DOMAIN_AFFECT_LIVE, 0)
        inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
        _change(dom, volume, libvirt.VIR_DOMAIN_AFFECT_CONFIG, inactive)
    existed = _delete(conn, dom, volume)
    with translated(f"forget the volume for cloud-init of {guest}"):
        # last: as long as the volume is there, the record says whose it is
        record = metadata.of_domain(dom).copy()
        remaining = [disk for disk in record.disks if disk.path != volume]
        if len(remaining) != len(record.disks):
            record.disks = remaining
            metadata.write(dom, record)
    return existed


def _delete(conn: libvirt.virConnect, dom: libvirt.virDomain, volume: str) -> bool:
    """Whether there was one."""
    if not os.path.lexists(volume):
        return False
    try:
        with deletion.ensure_unused(conn, volume, dom.UUIDString(), is_own=True):
            os.unlink(volume)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise errors.OperationFailed(f"cannot delete {volume}: {exc.strerror}") from exc
    return True
