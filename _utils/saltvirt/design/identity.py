"""Identify the devices of a guest by the names recorded in its metadata.

File names and positions in a list change (snapshots, renames, restores); a recorded name does not.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from saltvirt.design.source import Source, disk_locations, own_locations
from saltvirt.spec.disk import FORMATS
from saltvirt.xml.domain.metadata import NamedDisk, NamedInterface

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from saltvirt.design.source import Location
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.devices.interface import Interface
    from saltvirt.xml.domain.domain import Domain
    from saltvirt.xml.domain.metadata import GuestRecord

NAMES_VERSION = "1"
# such a file was named after the target, because the disk's name was unknown
_TARGET = re.compile(r"(vd|sd|hd|xvd)[a-z]{1,3}")


def has_device_names(domain: Domain) -> bool:
    """Whether the names of the guest's devices are recorded."""
    return bool(domain.record.devices)


def begin_names(record: GuestRecord) -> None:
    """Mark a record as complete: it has the names of all devices that were requested by name."""
    record.devices.version = NAMES_VERSION


def named_locations(named_disk: NamedDisk) -> set[Location]:
    """All ways to name the location of a NamedDisk; see :func:`source.disk_locations`."""
    locations: set[Location] = set()
    if named_disk.path:
        locations.add(("path", named_disk.path))
    if named_disk.pool:
        locations.add(("volume", named_disk.pool, named_disk.volume))
    if named_disk.server:
        locations.add(("network", named_disk.server))
    return locations


def disk_names(domain: Domain) -> dict[str, str]:
    """{target: name} of the disks whose name is recorded.

    A disk is identified by its location, and if no disk has that location, by its target: an
    external snapshot changes the location, but not the target. A drive is identified by its target
    only: a medium can be moved to another drive.
    """
    by_target: dict[str, str] = {}
    rest = list(domain.record.devices.disks)
    tests: tuple[Callable[[NamedDisk, Disk], object], ...] = (
        lambda named_disk, disk: (
            disk.target == named_disk.target and disk_locations(disk) & named_locations(named_disk)
        ),
        lambda named_disk, disk: (
            not disk.removable_medium and disk_locations(disk) & named_locations(named_disk)
        ),
        lambda named_disk, disk: named_disk.target and disk.target == named_disk.target,
    )
    for fits in tests:
        for named_disk in list(rest):
            free = (disk for disk in domain.disks if (disk.target or "") not in by_target)
            hit = next((disk for disk in free if fits(named_disk, disk)), None)
            if hit is not None:
                by_target[hit.target or ""] = named_disk.name or ""
                rest.remove(named_disk)
    return by_target


def running_disk_names(running: Domain, stored: Domain) -> dict[str, str]:
    """{target: name} of the disks of a running guest. The name of a disk that was removed from the
    definition, but not yet released by the guest, is taken from its file name; its target may
    belong to another disk in the definition."""
    stored_names, by_target = disk_names(stored), dict[str, str]()
    for disk in running.disks:
        locations = disk_locations(disk)
        match = next((item for item in stored.disks if disk_locations(item) & locations), None)
        if match:
            name = stored_names.get(match.target or "")
        else:
            name = _name_in_file(running.name or "", disk)
        if name:
            by_target[disk.target or ""] = name
    return by_target


def disk_named(domain: Domain, name: str) -> Disk | None:
    """The disk that was recorded under a name; None if there is none."""
    names = disk_names(domain)
    return next((disk for disk in domain.disks if names.get(disk.target or "") == name), None)


def entry(record: GuestRecord, name: str) -> NamedDisk | None:
    """The NamedDisk of a name."""
    return next((item for item in record.devices.disks if item.name == name), None)


def name_disk(record: GuestRecord, name: str, disk: Disk, source: Source | None = None) -> None:
    """Record the name of a disk of the guest. source: its Source, if that has more details of the
    location than the disk. A recorded disk keeps its location unless ``source`` is given, because
    the current file may be the overlay of a snapshot, or the drive may be empty now.

    Another name of the same data is removed. A detached disk with this target keeps its name,
    without the target."""
    named_disk = entry(record, name)
    for recorded in record.devices.disks:
        if recorded.name != name and recorded.target == disk.target:
            old_locations = named_locations(recorded)
            if not old_locations or old_locations & disk_locations(disk):
                record.devices.disks.remove(recorded)
            else:
                recorded.target = None
    if named_disk is not None and source is None and disk.source:
        named_disk.target = disk.target
        return
    begin_names(record)
    # an entry keeps its position in the list, so that an unchanged record is not written again
    if named_disk is None:
        named_disk = record.devices.disks.append(NamedDisk(name=name))
    named_disk.target = disk.target
    source = source or Source.of_disk(disk) or Source()
    named_disk.path = source.base or source.path
    named_disk.pool, named_disk.volume = source.pool, source.volume
    named_disk.server = source.element().location() if source.server else None


def forget_disks(domain: Domain) -> None:
    """Remove the names of disks that the guest no longer has from its record, except disks that
    were created for it and were detached by a revert or by libvirt rather than by an update."""
    current_names = set(disk_names(domain).values())
    created: set[Location] = set().union(*map(own_locations, domain.record.disks))
    for named_disk in domain.record.devices.disks:
        if named_disk.name not in current_names and not named_locations(named_disk) & created:
            domain.record.devices.disks.remove(named_disk)


def find_disks(
    specs: Sequence[DiskSpec],
    domain: Domain,
    same_place: Callable[[DiskSpec, Disk], object],
    same_file: Callable[[DiskSpec, Disk], object] | None = None,
    skip: Collection[str | None] = (),
) -> dict[str, str]:
    """{name of a DiskSpec: target of its disk}; no entry for a spec without an existing disk.

    The disk is identified by the location that the spec names, then by the recorded name, then by
    the target. File names and the order of drives are only used for disks without a recorded
    name: the medium of a drive with another name is kept.

    same_place: whether a spec names the location of a disk. same_file: whether a spec names no
    location, and the name of a disk's file is the default. skip: targets of disks that are not
    considered.
    """
    recorded_names, requested = disk_names(domain), {spec.name for spec in specs}
    free = [disk for disk in domain.disks if disk.target not in skip]
    targets: dict[str, str] = {}

    def is_other_disk(disk: Disk, spec: DiskSpec) -> bool:
        return recorded_names.get(disk.target or "", spec.name) in requested - {spec.name}

    tests: tuple[Callable[[DiskSpec, Disk], object], ...] = (
        lambda spec, disk: not spec.removable and same_place(spec, disk),
        lambda spec, disk: recorded_names.get(disk.target or "") == spec.name,
        lambda spec, disk: spec.target == disk.target and not is_other_disk(disk, spec),
        lambda spec, disk: spec.removable and same_place(spec, disk),
        lambda spec, disk: (
            same_file and disk.target not in recorded_names and same_file(spec, disk)
        ),
        lambda spec, disk: (
            spec.removable and disk.device == spec.device and disk.target not in recorded_names
        ),
    )
    for fits in tests:
        for spec in specs:
            if spec.name in targets:
                continue
            kind = spec.removable
            hit = next((d for d in free if d.removable_medium is kind and fits(spec, d)), None)
            if hit is not None:
                targets[spec.name] = hit.target or ""
                free.remove(hit)
    return targets


def boot_disk(domain: Domain) -> Disk | None:
    """The boot disk: the one with the lowest boot order, otherwise the first."""
    disks = [disk for disk in domain.disks if not disk.removable_medium]
    ordered = sorted((d for d in disks if d.boot_order), key=lambda disk: disk.boot_order or 0)
    return next(iter([*ordered, *disks]), None)


def seeded_disk(domain: Domain) -> Disk | None:
    """The disk with the seeded system, from the record. Without one, the boot disk or the
    first of the disks that were created for it. None if no disk was created for it."""
    seeded_by_target = {own_disk.target: bool(own_disk.seeded) for own_disk in domain.record.disks}
    created_disks = [
        d
        for d in domain.disks
        if d.target in seeded_by_target and d.device in (None, "disk") and d.source
    ]
    boots = boot_disk(domain)
    first = [disk for disk in created_disks if seeded_by_target[disk.target]]
    first += [disk for disk in created_disks if boots is not None and disk.target == boots.target]
    return next(iter([*first, *created_disks]), None)


def nic_names(domain: Domain) -> dict[str, str]:
    """{MAC in lower case: name} of the interfaces whose name is recorded."""
    macs = {(nic.mac or "").lower() for nic in domain.interfaces}
    by_mac = {(item.mac or "").lower(): item.name or "" for item in _interfaces(domain)}
    return {mac: name for mac, name in by_mac.items() if mac in macs}


def nic_named(domain: Domain, name: str) -> Interface | None:
    """The interface that was recorded under a name; None if there is none."""
    names = nic_names(domain)
    return next(
        (nic for nic in domain.interfaces if names.get((nic.mac or "").lower()) == name), None
    )


def name_nic(record: GuestRecord, name: str, mac: str) -> None:
    """Record the name of an interface of the guest."""
    named_nic = None
    for recorded in record.devices.interfaces:
        if recorded.name == name:
            named_nic = recorded
        elif (recorded.mac or "").lower() == mac.lower():
            record.devices.interfaces.remove(recorded)
    begin_names(record)
    if named_nic is None:
        named_nic = record.devices.interfaces.append(NamedInterface(name=name))
    named_nic.mac = mac.lower()


def forget_nics(domain: Domain) -> None:
    """Remove the names of interfaces that the guest no longer has from its record."""
    current_names = nic_names(domain)
    for named_nic in _interfaces(domain):
        if (named_nic.mac or "").lower() not in current_names:
            domain.record.devices.interfaces.remove(named_nic)


def _interfaces(domain: Domain) -> list[NamedInterface]:
    return list(domain.record.devices.interfaces)


def upgrade(domain: Domain) -> None:
    """Record the names of disks without one if their file names prove them: the guest's name, ``_``
    and the disk's name. Other disks stay without a name."""
    recorded_names = disk_names(domain)
    used_names = set(recorded_names.values())
    for disk in domain.disks:
        name = _name_in_file(domain.name or "", disk)
        if name and name not in used_names and (disk.target or "") not in recorded_names:
            name_disk(domain.record, name, disk)
            used_names.add(name)


def _name_in_file(guest: str, disk: Disk) -> str | None:
    """The disk's name from the name of its file or volume, or None."""
    source = disk.source
    if disk.removable_medium or not source or (source.protocol and not source.pool):
        return None
    file_path = source.volume if source.pool else source.file
    base = posixpath.basename(file_path or "")
    if not base.startswith(f"{guest}_"):
        return None
    name, _, kind = base[len(guest) + 1 :].rpartition(".")
    if source.pool or kind not in FORMATS:
        name = base[len(guest) + 1 :].partition(".")[0]
    return None if not name or _TARGET.fullmatch(name) else name


def carry(old: Domain, new: Domain, macs: Mapping[str, str] | None = None) -> None:
    """Copy the names of a guest's devices to a guest that was created from it: a clone, or a
    restored guest. See :func:`fill`."""
    new.record.devices = None
    fill(old, new, macs)


def fill(old: Domain, new: Domain, macs: Mapping[str, str] | None = None) -> None:
    """Copy names from ``old`` to the same devices of ``new`` that have no name: disks with the same
    target, interfaces with the same MAC.

    macs: {MAC in ``old``, in lower case: MAC in ``new``} of interfaces whose MAC differs.
    """
    source = old.copy()
    upgrade(source)
    if has_device_names(old):
        begin_names(new.record)
    names, recorded_names = disk_names(source), disk_names(new)
    for disk in new.disks:
        target = disk.target or ""
        name = names.get(target)
        if name and target not in recorded_names and name not in recorded_names.values():
            name_disk(new.record, name, disk)
    macs_now = {(nic.mac or "").lower() for nic in new.interfaces}
    for mac, name in nic_names(source).items():
        new_mac = (macs or {}).get(mac, mac).lower()
        new_names = nic_names(new)
        if new_mac in macs_now and new_mac not in new_names and name not in new_names.values():
            name_nic(new.record, name, new_mac)
