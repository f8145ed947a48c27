"""Build a volume's definition from the user's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    from saltvirt.spec.volume import VolumeSpec


def compat(format: str | None) -> str | None:
    """The version of a new image. By default, libvirt creates qcow2 images that do not support
    bitmaps of backups, and cannot be resized with snapshots."""
    return "1.1" if format == "qcow2" else None


def build(spec: VolumeSpec) -> Volume:
    """Build the Volume of a VolumeSpec."""
    volume = put(Volume(), spec)
    volume.allocation_bytes = spec.allocation_bytes or 0
    volume.compat = compat(spec.format)
    if spec.permissions:
        put(volume.permissions, spec.permissions)
    return volume
