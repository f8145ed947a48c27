"""The guest's disks: buses, targets, drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design import guest_os, identity, iotune
from saltvirt.design.caps import X86
from saltvirt.design.put import put
from saltvirt.design.source import Source, disk_locations, owns
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.xml.devices.controller import Controller
from saltvirt.xml.devices.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.design.context import Context
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

PREFIX = {
    "virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd",
    "fdc": "fd", "xen": "xvd", "sd": "sd",
}  # fmt: skip


def bus(spec: DiskSpec, domain: Domain, context: Context) -> str:
    """The bus of a disk: as requested, otherwise the best that the host supports."""
    if spec.model:
        if not context.allows("disk", "bus", spec.model):
            raise Unsupported(f"disk {spec.name}: this host's guests have no bus {spec.model!r}")
        return spec.model
    if context.xen:
        return "ide" if spec.removable and context.guest.os_type == "hvm" else "xen"
    if spec.device == "floppy":
        return "fdc"
    if spec.device == "lun" or (context.virt_type == "vmware" and spec.device != "cdrom"):
        return "scsi"
    for name in _buses(spec, domain, context):
        if context.allows("disk", "bus", name):
            return name
    raise Unsupported(f"disk {spec.name}: this host names no bus for a {spec.device}")


def _buses(spec: DiskSpec, domain: Domain, context: Context) -> tuple[str, ...]:
    """The suitable buses of a disk, the best first."""
    if spec.device == "cdrom":
        q35 = "q35" in (domain.os.machine or "") or context.guest.arch not in X86
        if q35 and context.guest.arch not in X86:
            return ("scsi", "usb", "sata")
        return ("sata", "scsi", "ide", "usb") if q35 else ("ide", "sata", "scsi", "usb")
    preferred = guest_os.disk_bus(domain, context) if spec.device == "disk" else None
    return (preferred,) if preferred else ("virtio", "scsi", "sata", "ide")


def letters(number: int) -> str:
    """0 as a, 25 as z, 26 as aa."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def target(kind: str, used_targets: Collection[str | None]) -> str:
    """The first free target of a bus: vda, vdb …"""
    number = 0
    while PREFIX[kind] + letters(number) in used_targets:
        number += 1
    return PREFIX[kind] + letters(number)


def target_names(specs: Iterable[DiskSpec]) -> set[str | None]:
    """The requested targets, which no other disk gets."""
    return {spec.target for spec in specs if spec.target}


def source_of(spec: DiskSpec, context: Context) -> Source | None:
    """The location of a disk's data; None for an empty drive."""
    if spec.empty:
        return context.inputs.sources.get(spec.name)
    source = context.inputs.sources.get(spec.name) or Source.of_spec(spec)
    if source is None:
        raise InvalidInput(f"disk {spec.name}: the location of its data is unknown")
    return source


def driver(spec: DiskSpec, disk: Disk, source: Source | None, context: Context) -> None:
    """Set the driver: image format, and discard of freed blocks."""
    if not context.qemu:
        if context.xen and source is not None and source.kind == "file":
            disk.driver_name, disk.driver_type = "qemu", source.format or spec.format or "raw"
        elif context.virt_type == "test" and source is not None and source.format != "raw":
            disk.driver_type = source.format  # without a format, all tools assume raw
        return
    disk.driver_name = "qemu"
    fallback = "raw" if spec.removable or (source and source.block) else None
    disk.driver_type = (source.format if source else None) or spec.format or fallback or "raw"
    if spec.discard:
        disk.discard = spec.discard
    elif spec.device == "disk" and disk.driver_type == "qcow2":
        disk.discard = "unmap"


def build(spec: DiskSpec, domain: Domain, context: Context, used_targets: set[str | None]) -> Disk:
    """Build a Disk for a DiskSpec. ``used_targets``: targets in use or requested; the new one is
    added."""
    kind = bus(spec, domain, context)
    source = source_of(spec, context)
    disk = Disk(type=source.kind if source else "file", device=spec.device)
    driver(spec, disk, source, context)
    if source:
        disk.source = source.element()
    disk.target = spec.target or target(kind, used_targets)
    disk.bus = kind
    used_targets.add(disk.target)
    put(disk, spec)
    iotune.apply(spec, disk)
    if spec.cache is None and source and spec.device == "disk":
        disk.cache = source.cache
        _direct(spec, disk, source, context)
    if spec.device == "cdrom":
        disk.read_only = True
    _check(spec, disk, domain)
    return disk


def _direct(spec: DiskSpec, disk: Disk, source: Source, context: Context) -> None:
    """Bypass the host's cache for a block device: the guest has a cache of its own."""
    if context.qemu and source.block:
        disk.cache = "none"
        if spec.io is None:
            disk.io = "native"


def _is_direct(disk: Disk) -> bool:
    """Whether a disk bypasses the host's cache, as io native requires."""
    return disk.cache in ("none", "directsync")


def _check(spec: DiskSpec, disk: Disk, domain: Domain) -> None:
    # io native has no meaning for an empty drive or a network disk, but libvirt accepts it
    if disk.io == "native" and not _is_direct(disk):
        if disk.cache is not None:
            raise InvalidInput(f"disk {spec.name}: io native needs cache none or directsync")
        disk.cache = "none"
    if disk.iothread and disk.iothread > (domain.iothreads or 0):
        raise InvalidInput(
            f"disk {spec.name}: iothread_id {disk.iothread}: the guest has "
            f"{domain.iothreads or 0} iothreads, set cpu: iothreads"
        )


def edit(
    spec: DiskSpec, disk: Disk, domain: Domain, context: Context, used_targets: set[str | None]
) -> None:
    """Apply a DiskSpec to its Disk: medium, driver settings, bus. used_targets: as for
    :func:`build`."""
    source = _prepared_source(spec, context)
    if source is not None and not source.locations() & disk_locations(disk):
        disk.source, disk.type, disk.backing_store = source.element(), source.kind, None
        disk.driver_type = source.format or spec.format or "raw"
    elif source is None and spec.empty and disk.source:
        disk.source, disk.type, disk.backing_store = None, "file", None
        disk.driver_type = "raw"
    if spec.model and spec.model != disk.bus:
        own_disks = [own_disk for own_disk in domain.record.disks if owns(own_disk, disk)]
        disk.bus, disk.address = bus(spec, domain, context), None
        disk.target = spec.target or target(disk.bus, used_targets)
        used_targets.add(disk.target)
        for own_disk in own_disks:
            own_disk.target = disk.target
    put(disk, spec, "discard")
    if spec.cache is not None and spec.io is None and not _is_direct(disk):
        disk.io = None if disk.io == "native" else disk.io
    iotune.apply(spec, disk)
    _check(spec, disk, domain)


def amend(
    spec: GuestSpec, domain: Domain, context: Context
) -> list[tuple[DiskSpec, Disk, Source | None]]:
    """Apply a GuestSpec's disks to an existing domain. Returns each DiskSpec with its Disk, and
    with the Source that the spec names, if any."""
    specs = spec.disks or []
    targets = context.inputs.disk_targets
    if targets is None:
        targets = identity.find_disks(
            specs, domain, lambda s, d: _is_at(_prepared_source(s, context), d)
        )
    by_target = {disk.target: disk for disk in domain.disks}
    for disk in [disk for disk in domain.disks if disk.target not in targets.values()]:
        if _leaves(disk, specs, context):
            domain.disks.remove(disk)
    used_targets = {disk.target for disk in domain.disks} | target_names(specs)
    used_targets |= {*context.inputs.busy_targets}
    pairs: list[tuple[DiskSpec, Disk, Source | None]] = []
    for disk_spec in specs:
        if disk_spec.name in targets:
            disk = by_target[targets[disk_spec.name]]
            edit(disk_spec, disk, domain, context, used_targets)
            pairs.append((disk_spec, disk, Source.of_spec(disk_spec)))
    for disk_spec in specs:
        if disk_spec.name not in targets:
            disk = domain.disks.append(build(disk_spec, domain, context, used_targets))
            pairs.append((disk_spec, disk, source_of(disk_spec, context)))
    controllers(domain, context)
    return pairs


def _leaves(disk: Disk, specs: Collection[DiskSpec], context: Context) -> bool:
    """Whether a disk without a DiskSpec is detached."""
    if context.inputs.leaving is not None:
        return disk.target in context.inputs.leaving
    return disk.type != "block" or not specs


def _is_at(source: Source | None, disk: Disk) -> bool:
    return source is not None and bool(source.locations() & disk_locations(disk))


def _prepared_source(spec: DiskSpec, context: Context) -> Source | None:
    return context.inputs.sources.get(spec.name) or Source.of_spec(spec)


def on_scsi(domain: Domain) -> bool:
    """Whether the guest has SCSI disks or devices."""
    return any(disk.bus == "scsi" for disk in domain.disks) or any(
        device.type == "scsi" for device in domain.host_devices
    )


def controllers(domain: Domain, context: Context) -> None:
    """Add the SCSI controller for SCSI disks and devices: libvirt's default is an old model."""
    existing_scsi = [item for item in domain.controllers if item.type == "scsi"]
    if on_scsi(domain) and not existing_scsi:
        model = {"vmware": "lsilogic"}.get(context.virt_type)
        model = "virtio-scsi" if context.qemu else model
        if model:
            domain.controllers.append(Controller(type="scsi", index=0, model=model))
