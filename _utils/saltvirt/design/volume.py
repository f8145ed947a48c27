"""A volume's definition from what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.xml.storage.volume import Volume

if TYPE_CHECKING:
    from saltvirt.spec.volume import VolumeSpec


def compat(format: str | None) -> str | None:
    """The version of a new image. Of qcow2 libvirt makes one that takes no bitmaps of backups, and
    is not resized beside snapshots, unless it is told."""
    return "1.1" if format == "qcow2" else None


def build(spec: VolumeSpec) -> Volume:
    """The Volume of a VolumeSpec."""
    volume = Volume(type=spec.type, name=spec.name, capacity_bytes=spec.size_bytes)
    volume.allocation_bytes = spec.allocation_bytes or 0
    volume.format = spec.format
    volume.compat = compat(spec.format)
    volume.nocow = spec.nocow or None
    if spec.permissions:
        put(volume.permissions, spec.permissions, "mode", "owner", "group", "label")
    if spec.backing_store:
        volume.backing_path = spec.backing_store.path
        volume.backing_format = spec.backing_store.format
    return volume
