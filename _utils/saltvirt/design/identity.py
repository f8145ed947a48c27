"""Which device of a guest is which, by the record of their names in its metadata.

File names and places in a list change (snapshots, renames, restores); a name that was recorded
with the device does not.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from saltvirt.design.source import Source, own_places, places
from saltvirt.spec.disk import FORMATS
from saltvirt.xml.metadata import NamedDisk, NamedInterface

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from saltvirt.design.source import Place
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.disk import Disk
    from saltvirt.xml.domain import Domain
    from saltvirt.xml.interface import Interface
    from saltvirt.xml.metadata import GuestRecord

NAMES_VERSION = "1"
# a file that is called so was named after the target, because nobody knew the disk's name
_TARGET = re.compile(r"(vd|sd|hd|xvd)[a-z]{1,3}")


def recorded(domain: Domain) -> bool:
    """Whether the names of the guest's devices are recorded: not of guests made before."""
    return bool(domain.record.devices)


def begin(record: GuestRecord) -> None:
    """Marks a record as one that has the names of all devices that were requested by name."""
    record.devices.version = NAMES_VERSION


def named_places(named: NamedDisk) -> set[Place]:
    """Every way to name the place of a NamedDisk; see :func:`source.places`."""
    found: set[Place] = set()
    if named.path:
        found.add(("path", named.path))
    if named.pool:
        found.add(("volume", named.pool, named.volume))
    if named.server:
        found.add(("network", named.server))
    return found


def disk_names(domain: Domain) -> dict[str, str]:
    """{target: name} of the disks whose name is recorded.

    The place decides, and where no disk has that place, the target: the place of a disk changes
    with an external snapshot, the target does not. Of a drive the target alone decides: a medium
    goes from one drive to another.
    """
    found: dict[str, str] = {}
    rest = list(domain.record.devices.disks)
    tests: tuple[Callable[[NamedDisk, Disk], object], ...] = (
        lambda named, disk: disk.target == named.target and places(disk) & named_places(named),
        lambda named, disk: not disk.removable_medium and places(disk) & named_places(named),
        lambda named, disk: named.target and disk.target == named.target,
    )
    for fits in tests:
        for named in list(rest):
            free = (disk for disk in domain.disks if (disk.target or "") not in found)
            hit = next((disk for disk in free if fits(named, disk)), None)
            if hit is not None:
                found[hit.target or ""] = named.name or ""
                rest.remove(named)
    return found


def running_disk_names(running: Domain, stored: Domain) -> dict[str, str]:
    """{target: name} of the disks of a running guest. A disk that left the definition, and that
    the guest has not released, has the name in its file's name; its target may be another disk's in
    the definition."""
    known, found = disk_names(stored), dict[str, str]()
    for disk in running.disks:
        same = (one for one in stored.disks if places(one) & places(disk))
        match = next(same, None)
        name = known.get(match.target or "") if match else _name_in_file(running.name or "", disk)
        if name:
            found[disk.target or ""] = name
    return found


def disk_named(domain: Domain, name: str) -> Disk | None:
    """The disk that was recorded under a name; None where the guest has none of it."""
    known = disk_names(domain)
    return next((disk for disk in domain.disks if known.get(disk.target or "") == name), None)


def entry(record: GuestRecord, name: str) -> NamedDisk | None:
    """The NamedDisk of a name."""
    return next((named for named in record.devices.disks if named.name == name), None)


def name_disk(record: GuestRecord, name: str, disk: Disk, source: Source | None = None) -> None:
    """Records the name of a disk that the guest has. source: its Source, where that says more of
    its place than the disk does. One that is recorded keeps its place unless ``source`` is given,
    as what is above it is a snapshot's, or the disk is a drive that is empty now.

    Another name of the same data goes. A disk that left the guest and had this target keeps its
    name, without the target."""
    named = entry(record, name)
    for other in record.devices.disks:
        if other.name != name and other.target == disk.target:
            place = named_places(other)
            if not place or place & places(disk):
                record.devices.disks.remove(other)
            else:
                other.target = None
    if named is not None and source is None and disk.source:
        named.target = disk.target
        return
    begin(record)
    # an entry keeps its place in the list: a record that says the same is not written again
    if named is None:
        named = record.devices.disks.append(NamedDisk(name=name))
    named.target = disk.target
    source = source or Source.of_disk(disk) or Source()
    named.path, named.pool, named.volume = source.path, source.pool, source.volume
    named.server = source.element().place() if source.protocol else None


def forget_disks(domain: Domain) -> None:
    """Takes the names of disks that the guest does not have out of its record, but for those that
    were made for it and left it otherwise than by an update: by a revert, or by libvirt."""
    there = set(disk_names(domain).values())
    made = [own_places(own) for own in domain.record.disks]
    for named in domain.record.devices.disks:
        if named.name not in there and not any(named_places(named) & its for its in made):
            domain.record.devices.disks.remove(named)


def find_disks(
    specs: Sequence[DiskSpec],
    domain: Domain,
    same_place: Callable[[DiskSpec, Disk], object],
    same_file: Callable[[DiskSpec, Disk], object] | None = None,
    skip: Collection[str | None] = (),
) -> dict[str, str]:
    """{name of a DiskSpec: target of the disk that it means}; no entry for one that means none.

    The place that a spec names decides, then the recorded name, then the target. File names count
    for disks without a recorded name only, and the order for drives whose name no spec has.

    same_place: whether a spec itself names the place of a disk. same_file: whether a spec names no
    place, and the name of a disk's file is the one that it would get. skip: targets of disks
    that no spec means.
    """
    known, requested = disk_names(domain), {spec.name for spec in specs}
    free = [disk for disk in domain.disks if disk.target not in skip]
    found: dict[str, str] = {}

    def other(disk: Disk, spec: DiskSpec) -> bool:
        return known.get(disk.target or "", spec.name) in requested - {spec.name}

    tests: tuple[Callable[[DiskSpec, Disk], object], ...] = (
        lambda spec, disk: not spec.removable and same_place(spec, disk),
        lambda spec, disk: known.get(disk.target or "") == spec.name,
        lambda spec, disk: spec.target == disk.target and not other(disk, spec),
        lambda spec, disk: spec.removable and same_place(spec, disk),
        lambda spec, disk: same_file and disk.target not in known and same_file(spec, disk),
        lambda spec, disk: spec.removable and disk.device == spec.device and not other(disk, spec),
    )
    for fits in tests:
        for spec in specs:
            if spec.name in found:
                continue
            kind = spec.removable
            hit = next((d for d in free if d.removable_medium is kind and fits(spec, d)), None)
            if hit is not None:
                found[spec.name] = hit.target or ""
                free.remove(hit)
    return found


def boot_disk(domain: Domain) -> Disk | None:
    """The disk that a guest boots from: the one with the lowest boot order, else the first."""
    disks = [disk for disk in domain.disks if not disk.removable_medium]
    ordered = sorted((d for d in disks if d.boot_order), key=lambda disk: disk.boot_order or 0)
    return next(iter([*ordered, *disks]), None)


def seeded_disk(domain: Domain) -> Disk | None:
    """The disk with the system that was seeded, by the record; of a guest made before that was
    recorded the one that it boots from, else the first, of the disks made for it. None without a
    disk that was made for it."""
    own = {one.target: bool(one.seeded) for one in domain.record.disks}
    made = [d for d in domain.disks if d.target in own and d.device in (None, "disk") and d.source]
    boots = boot_disk(domain)
    first = [disk for disk in made if own[disk.target]]
    first += [disk for disk in made if boots is not None and disk.target == boots.target]
    return next(iter([*first, *made]), None)


def nic_names(domain: Domain) -> dict[str, str]:
    """{MAC in lower case: name} of the interfaces whose name is recorded."""
    there = {(nic.mac or "").lower() for nic in domain.interfaces}
    found = {(named.mac or "").lower(): named.name or "" for named in _interfaces(domain)}
    return {mac: name for mac, name in found.items() if mac in there}


def nic_named(domain: Domain, name: str) -> Interface | None:
    """The interface that was recorded under a name; None where the guest has none of it."""
    known = nic_names(domain)
    return next(
        (nic for nic in domain.interfaces if known.get((nic.mac or "").lower()) == name), None
    )


def name_nic(record: GuestRecord, name: str, mac: str) -> None:
    """Records the name of an interface that the guest has."""
    named = None
    for other in record.devices.interfaces:
        if other.name == name:
            named = other
        elif (other.mac or "").lower() == mac.lower():
            record.devices.interfaces.remove(other)
    begin(record)
    if named is None:
        named = record.devices.interfaces.append(NamedInterface(name=name))
    named.mac = mac.lower()


def forget_nics(domain: Domain) -> None:
    """Takes the names of interfaces that the guest does not have out of its record."""
    there = nic_names(domain)
    for named in _interfaces(domain):
        if (named.mac or "").lower() not in there:
            domain.record.devices.interfaces.remove(named)


def _interfaces(domain: Domain) -> list[NamedInterface]:
    return list(domain.record.devices.interfaces)


def upgrade(domain: Domain) -> None:
    """Records the names of disks that have none, as far as their files' names prove them: the
    guest's name, ``_`` and the disk's. Others stay without a name."""
    known = disk_names(domain)
    taken = set(known.values())
    for disk in domain.disks:
        name = _name_in_file(domain.name or "", disk)
        if name and name not in taken and (disk.target or "") not in known:
            name_disk(domain.record, name, disk)
            taken.add(name)


def _name_in_file(guest: str, disk: Disk) -> str | None:
    """The disk's name in the name of its file or volume; None where there is none."""
    source = disk.source
    if disk.removable_medium or not source or (source.protocol and not source.pool):
        return None
    place = source.volume if source.pool else source.file
    base = posixpath.basename(place or "")
    if not base.startswith(f"{guest}_"):
        return None
    name, _, kind = base[len(guest) + 1 :].rpartition(".")
    if source.pool or kind not in FORMATS:
        name = base[len(guest) + 1 :].partition(".")[0]
    return None if not name or _TARGET.fullmatch(name) else name


def carry(old: Domain, new: Domain, macs: Mapping[str, str] | None = None) -> None:
    """Records the names of a guest's devices for a guest made from it: a clone, one from a backup.
    See :func:`fill`."""
    new.record.devices = None
    fill(old, new, macs)


def fill(old: Domain, new: Domain, macs: Mapping[str, str] | None = None) -> None:
    """Gives the devices of ``new`` that have no name the names that the same devices have in
    ``old``: disks are the same by their targets, interfaces by their MACs.

    macs: {MAC in ``old``, in lower case: MAC in ``new``} of interfaces that have another one.
    """
    source = old.copy()
    upgrade(source)
    if recorded(old):
        begin(new.record)
    names, known = disk_names(source), disk_names(new)
    for disk in new.disks:
        name = names.get(disk.target or "")
        if name and (disk.target or "") not in known and name not in known.values():
            name_disk(new.record, name, disk)
    there = {(nic.mac or "").lower() for nic in new.interfaces}
    for mac, name in nic_names(source).items():
        now = (macs or {}).get(mac, mac).lower()
        named = nic_names(new)
        if now in there and now not in named and name not in named.values():
            name_nic(new.record, name, now)
