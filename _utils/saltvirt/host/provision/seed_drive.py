"""The drive with a guest's cloud-init volume, and its removal."""

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

# no request can give a disk this name
NAME = "seed drive"
FOLDER = "_seed"


def path(images_dir: str, guest: str) -> str:
    """Return the path of a guest's volume. The name of a guest never starts with ``_``."""
    return os.path.join(os.path.abspath(images_dir), FOLDER, f"{guest}.iso")


def is_seed_path(path_text: str, guest: str) -> bool:
    """Return whether a path is that of the guest's volume on this host or on another host."""
    folder, name = os.path.split(path_text)
    return name == f"{guest}.iso" and os.path.basename(folder) == FOLDER


def _drive(dom: libvirt.virDomain, volume: str, flags: int) -> Disk | None:
    """Return the guest's drive that contains the volume, or None."""
    tree = Domain.fromstring(dom.XMLDesc(flags))
    return next((disk for disk in tree.disks if disk.source.file == volume), None)


def _change(dom: libvirt.virDomain, volume: str, flag: int, xml_flag: int) -> None:
    drive = _drive(dom, volume, xml_flag)
    if drive:
        drive.source = None
        dom.updateDeviceFlags(drive.tostring(), flag | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE)


def eject(conn: libvirt.virConnect, guest: str, images_dir: str) -> bool:
    """Eject and delete the guest's volume, which contains a private key.

    Returns whether it existed. Raises NotFound, OperationFailed.
    """
    dom = lookup.lookup(conn, guest)
    volumes = {path(images_dir, guest), *_recorded_paths(dom)}
    ejections = [_eject(conn, dom, volume) for volume in sorted(volumes)]
    return any(ejections)


def _recorded_paths(dom: libvirt.virDomain) -> set[str]:
    """Return the volumes in the guest's record.

    A guest from another host has its volume at the path that it had there.
    """
    with translated(f"read the record of {dom.name()}"):
        paths = [disk.path or "" for disk in metadata.of_domain(dom).disks]
    return {
        path_text for path_text in paths if os.path.basename(os.path.dirname(path_text)) == FOLDER
    }


def _eject(conn: libvirt.virConnect, dom: libvirt.virDomain, volume: str) -> bool:
    """Eject and delete one volume; return whether it existed."""
    guest = dom.name()
    with translated(f"remove the volume for cloud-init from {guest}"):
        if dom.isActive():
            _change(dom, volume, libvirt.VIR_DOMAIN_AFFECT_LIVE, 0)
        inactive = libvirt.VIR_DOMAIN_XML_INACTIVE
        _change(dom, volume, libvirt.VIR_DOMAIN_AFFECT_CONFIG, inactive)
    existed = _delete(conn, dom, volume)
    with translated(f"undefine the volume for cloud-init of {guest}"):
        # last: the record names the owner while the volume exists
        record = metadata.of_domain(dom).copy()
        remaining = [disk for disk in record.disks if disk.path != volume]
        if len(remaining) != len(record.disks):
            record.disks = remaining
            metadata.write(dom, record)
    return existed


def _delete(conn: libvirt.virConnect, dom: libvirt.virDomain, volume: str) -> bool:
    """Delete the volume; return whether it existed."""
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
