"""Differences of containers: file systems instead of disks, an init process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.disks import source_of
from saltvirt.errors import Unsupported
from saltvirt.spec.base import value_or_none
from saltvirt.xml.devices.filesystem import Filesystem
from saltvirt.xml.domain.metadata import OwnDisk

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

INIT = "/sbin/init"


def filesystem(spec: DiskSpec, first: bool, context: Context) -> Filesystem:
    """Build a Filesystem for a DiskSpec: the first one is the root, others are below /mnt."""
    source = source_of(spec, context)
    if source is None or source.kind not in ("file", "block") or spec.device != "disk":
        raise Unsupported(f"disk {spec.name}: a container takes image files and block devices")
    fs_device = Filesystem(type=source.kind, access_mode="passthrough")
    if source.block:
        fs_device.source_dev = source.path
    else:
        format_ = source.format or spec.format or "raw"
        fs_device.driver_type = "loop" if format_ == "raw" else "nbd"
        fs_device.driver_format = format_
        fs_device.source_file = source.path
    fs_device.target = "/" if first else f"/mnt/{spec.name}"
    fs_device.read_only = value_or_none(spec.read_only)
    return fs_device


def check(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Raise Unsupported if the requested file systems differ from those of the container."""
    sources = {
        fs_device.target: fs_device.source_file or fs_device.source_dev
        for fs_device in domain.filesystems
    }
    for number, disk in enumerate(spec.disks or ()):
        desired = filesystem(disk, number == 0, context)
        if sources.get(desired.target) != (desired.source_file or desired.source_dev):
            raise Unsupported(f"disk {disk.name}: a container's file systems cannot be changed")


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Add the file systems and the init process to a new container."""
    for number, disk in enumerate(spec.disks or ()):
        devices = domain.filesystems.append(filesystem(disk, number == 0, context))
        source = source_of(disk, context)
        if source and source.created:
            domain.record.disks.append(OwnDisk(target=devices.target, path=source.path))
    domain.os.init = domain.os.init or INIT
