"""Differences between a desired and an actual guest."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt.design.source import disk_locations
from saltvirt.diff import normal
from saltvirt.diff.change import Change
from saltvirt.xml.devices.input import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from saltvirt.xml.base import Element
    from saltvirt.xml.devices.controller import Controller
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.devices.filesystem import Filesystem
    from saltvirt.xml.devices.graphics import Graphics
    from saltvirt.xml.devices.interface import Interface
    from saltvirt.xml.domain.domain import Domain

GROUPS = {
    "vcpu": "cpu", "vcpus": "cpu", "cpu": "cpu", "cputune": "cpu", "iothreads": "cpu",
    "memory_kib": "mem", "current_memory_kib": "mem", "max_memory_kib": "mem",
    "memory_slots": "mem", "memtune": "mem", "memory_backing": "mem",
    "os": "boot", "bootloader": "boot", "bootloader_args": "boot",
}  # fmt: skip
LIVE = {("vcpu", "current"), ("current_memory_kib",), ("title",), ("description",)}
# buses with hotplug
HOTPLUG = ("virtio", "scsi", "usb", "xen")
# properties that libvirt can change on an interface in use
NIC_LIVE = {
    "type", "network", "bridge", "dev", "portgroup", "bandwidth", "link_state", "filter", "vlan",
    "virtualport", "isolated_port",
}  # fmt: skip
# libvirt can only reconnect an interface in use between these types
_NIC_KINDS = {"network", "bridge"}
# the elements of these properties
_NIC_PARTS = {
    "source": {"type", "network", "bridge", "dev", "portgroup"}, "bandwidth": {"bandwidth"},
    "link": {"link_state"}, "filterref": {"filter"}, "vlan": {"vlan"},
    "virtualport": {"virtualport"}, "port": {"isolated_port"},
}  # fmt: skip
# kinds of devices that libvirt adds itself: additional ones are not a difference
ADDED = ("controllers", "inputs", "channels")
# argument: its devices, usually at most one
SINGLE = {
    "panic": "panics", "sound": "sounds", "video": "videos", "iommu": "iommus", "vsock": "vsocks",
}  # fmt: skip
HIDDEN = "(hidden)"


def changes(
    desired: Domain,
    actual: Domain,
    live: bool = True,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    autostart: tuple[bool | None, bool] | None = None,
    removed: Mapping[str, Collection[str]] | None = None,
) -> list[Change]:
    """The list of Change from ``actual`` to ``desired``; empty if nothing differs.

    desired, actual: xml.domain.Domain; actual is the persistent definition. live: False marks every
    change as one for the next start. sizes: {target: (old_bytes, new_bytes)} of disks whose size
    was requested. autostart: (desired, actual), if requested. removed: {path of a device: settings
    that are removed}, as opposed to settings that are not given.

    Settings that libvirt adds are not differences: aliases, addresses, automatic ports and
    firmware, generated MACs, backing chains, labels, canonical machine names.
    """
    result = [
        *_settings(desired, actual),
        *_metadata(desired, actual),
        *_list("controllers", desired, actual),  # before the disks that depend on them
        *_disks(desired, actual, removed or {}),
        *_nics(desired, actual, removed or {}),
        *_graphics(desired, actual),
        *_host_devices(desired, actual),
        *_filesystems(desired, actual),
    ]
    for word, name in SINGLE.items():
        if word == "video" and len(desired.graphics) and not len(desired.videos):
            continue  # libvirt adds one beside a display
        result.extend(_single(word, list(getattr(desired, name)), list(getattr(actual, name))))
    for name in ("serials", "consoles", "tpms", "watchdogs", "rngs", *ADDED[1:]):
        result.extend(_list(name, desired, actual))
    result.extend(_balloon(desired, actual))
    for target, (old, new) in (sizes or {}).items():
        if new > old:
            result.append(Change("disks", f"disks:{target}:size_bytes", old, new, "resize", True))
    if autostart is not None and autostart[0] is not None and autostart[0] != autostart[1]:
        result.append(Change("autostart", "autostart", autostart[1], autostart[0], live=True))
    return result if live else [_not_live(change) for change in result]


def _not_live(change: Change) -> Change:
    return replace(change, live=False)


def _settings(desired: Domain, actual: Domain) -> Iterator[Change]:
    new, old = normal.settings(desired, actual)
    for path in sorted({*new, *old}):
        if new.get(path) != old.get(path):
            live = path in LIVE
            if path == ("vcpu", "current"):
                live = (new.get(path) or 1) <= (actual.vcpu.maximum or 1)
            if path == ("current_memory_kib",):
                live = (new.get(path) or 0) <= (actual.memory_kib or 0)
            subject = GROUPS.get(path[0], path[0])
            values = old.get(path), new.get(path)
            if path[:2] == ("sysinfo", "fw_cfg"):  # may contain passwords, as those of Ignition
                values = values[0] and HIDDEN, values[1] and HIDDEN
            yield Change(subject, ":".join(path), *values, live=live)


def _metadata(desired: Domain, actual: Domain) -> Iterator[Change]:
    new, old = (
        {e.key or "": e.value for e in domain.record.entries} for domain in (desired, actual)
    )
    if desired.record.os != actual.record.os:
        yield Change("os", "os", actual.record.os, desired.record.os, live=True)
    for key in sorted({*new, *old}):
        if new.get(key) != old.get(key):
            yield Change("metadata", f"metadata:{key}", old.get(key), new.get(key), live=True)


def _text(device: Element) -> str:
    return device.tostring().strip()


def _differing(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted({*new, *old}) if new.get(name) != old.get(name)]


def _disks(
    desired: Domain, actual: Domain, removed: Mapping[str, Collection[str]]
) -> Iterator[Change]:
    existing = {disk.target: disk for disk in actual.disks}
    requested = {disk.target: disk for disk in desired.disks}
    # a disk that moves to another bus is not removed from a running guest that may have it mounted
    data, new = (
        [disk_locations(disk) for disk in domain.disks if not disk.removable_medium]
        for domain in (actual, desired)
    )

    def moves(disk: Disk) -> bool:
        return all(
            any(disk_locations(disk) & side_locations for side_locations in side)
            for side in (data, new)
        )

    for target, disk in existing.items():
        if target not in requested:
            live = disk.bus in HOTPLUG and not moves(disk)
            location = _location(disk)
            yield Change("disks", f"disks:{target}", location, None, "detach", live, _text(disk))
    for target, disk in requested.items():
        path = f"disks:{target}"
        if target not in existing:
            live = disk.bus in HOTPLUG and not moves(disk)
            location = _location(disk)
            yield Change("disks", path, None, location, "attach", live, _text(disk))
        else:
            yield from _disk(disk, existing[target], removed.get(path, ()))


def _location(disk: Disk) -> str | None:
    """Return where the data of a disk are; a drive without a medium is also a disk."""
    return disk.source.location() or ("an empty drive" if disk.removable_medium else None)


def _disk(desired: Disk, actual: Disk, removed: Collection[str]) -> Iterator[Change]:
    new, old = normal.devices(desired, actual, removed)
    names = _differing(new, old)
    path = f"disks:{desired.target}"
    before, after = actual.source.location(), desired.source.location()
    medium = desired.removable_medium and set(names) <= {"source", "empty", "driver_type"}
    if names and medium:
        yield Change("disks", path, before, after, "medium", True, _text(desired))
        return
    if {"source", "empty"} & set(names):
        live = actual.bus in HOTPLUG, desired.bus in HOTPLUG
        yield Change("disks", path, before, None, "detach", live[0], _text(actual))
        yield Change("disks", path, None, after, "attach", live[1], _text(desired))
        return
    for name in names:
        action, text = "limit" if name == "iotune" else "set", _text(desired)
        values = old.get(name), new.get(name)
        yield Change("disks", f"{path}:{name}", *values, action, action == "limit", text)


def _nics(
    desired: Domain, actual: Domain, removed: Mapping[str, Collection[str]]
) -> Iterator[Change]:
    pairs, detached = _pair_nics(list(desired.interfaces), list(actual.interfaces))
    for nic in detached:
        path = f"nics:{nic.mac}"
        yield Change("nics", path, _nic(nic), None, "detach", True, _text(nic))
    for nic, existing in pairs:
        path = f"nics:{nic.mac or nic.source}"
        if existing is None:
            yield Change("nics", path, None, _nic(nic), "attach", True, _text(nic))
            continue
        new, old = normal.devices(nic, existing, removed.get(path, ()))
        names = _differing(new, old)
        kinds = {nic.type, existing.type}
        fixed = bool(kinds & {"direct", "hostdev"}) or (len(kinds) > 1 and not kinds <= _NIC_KINDS)
        live_names = [name for name in names if name in NIC_LIVE and not fixed]
        text = _text(nic) if live_names == names else _only(live_names, nic, existing)
        for name in names:
            values = old.get(name), new.get(name)
            yield Change("nics", f"{path}:{name}", *values, "update", name in live_names, text)


def _only(names: Collection[str], desired: Interface, actual: Interface) -> str:
    """The XML of the existing interface with only these properties changed to the desired ones."""
    node = actual.copy().need()
    for tag, properties in _NIC_PARTS.items():
        if not properties.isdisjoint(names):
            for part in node.findall(tag):
                node.remove(part)
            node.extend(copy.deepcopy(part) for part in desired.need().findall(tag))
    if "type" in names:
        node.set("type", desired.type or "")
    return _text(type(actual)(node))


def _nic(nic: Interface) -> dict[str, str | None]:
    return {"type": nic.type, "source": nic.source, "model": nic.model, "mac": nic.mac}


def _pair_nics(
    desired: list[Interface], unmatched: list[Interface]
) -> tuple[list[tuple[Interface, Interface | None]], list[Interface]]:
    """Pair each desired interface with the existing one of the same MAC or, without a MAC, of the
    same source."""
    pairs = []
    for nic in sorted(desired, key=lambda nic: nic.mac is None):
        hit = next((old for old in unmatched if _same_nic(nic, old)), None)
        pairs.append((nic, hit))
        if hit is not None:
            unmatched.remove(hit)
    return pairs, unmatched


def _same_nic(nic: Interface, old: Interface) -> bool:
    if nic.mac:
        return (old.mac or "").lower() == nic.mac.lower()
    return (old.type, old.source) == (nic.type, nic.source)


def _graphics(desired: Domain, actual: Domain) -> Iterator[Change]:
    existing = {item.type or "": item for item in actual.graphics}
    requested = {item.type or "": item for item in desired.graphics}
    for kind in sorted({*existing, *requested}):
        path = f"graphics:{kind}"
        if kind not in requested:
            yield Change("graphics", path, kind, None, "detach", xml=_text(existing[kind]))
        elif kind not in existing:
            yield Change("graphics", path, None, kind, "attach", xml=_text(requested[kind]))
        else:
            yield from _display(path, requested[kind], existing[kind])


def _display(path: str, desired: Graphics, actual: Graphics) -> Iterator[Change]:
    new, old = normal.devices(desired, actual)
    names = _differing(new, old)
    for name in names:
        values = old.get(name), new.get(name)
        if name == "password":
            values = values[0] and HIDDEN, values[1] and HIDDEN
        # a display in use can get another password, but not its first one, nor another address
        live = set(names) <= {"password", "password_valid_to"} and bool(actual.password)
        yield Change("graphics", f"{path}:{name}", *values, "update", live, _text(desired))


def _host_devices(desired: Domain, actual: Domain) -> Iterator[Change]:
    existing = {device.source_key(): device for device in actual.host_devices}
    requested = {device.source_key(): device for device in desired.host_devices}
    for key in [*existing, *(key for key in requested if key not in existing)]:
        path = "host_devices:" + ":".join(str(part) for part in key)
        if key not in requested:
            text = _text(existing[key])
            yield Change("host_devices", path, list(key), None, "detach", True, text)
        elif key not in existing:
            text = _text(requested[key])
            yield Change("host_devices", path, None, list(key), "attach", True, text)


def _filesystems(desired: Domain, actual: Domain) -> Iterator[Change]:
    """None is live: libvirtd 9.0 crashes when it attaches one to a running guest."""
    existing = {item.target: item for item in actual.filesystems}
    requested = {item.target: item for item in desired.filesystems}
    for tag in [*existing, *(tag for tag in requested if tag not in existing)]:
        new, old, path = requested.get(tag), existing.get(tag), f"filesystems:{tag}"
        if new is not None and old is not None:
            after, before = normal.devices(new, old)
            for name in _differing(after, before):
                yield Change("filesystems", f"{path}:{name}", before.get(name), after.get(name))
        elif new is not None:
            yield Change("filesystems", path, None, _folder(new), "attach", xml=_text(new))
        elif old is not None:
            yield Change("filesystems", path, _folder(old), None, "detach", xml=_text(old))


def _folder(item: Filesystem) -> str | None:
    return item.source_dir or item.source_file or item.source_dev


def _single(word: str, desired: list[Any], actual: list[Any]) -> Iterator[Change]:
    """Compare devices of which a guest usually has one: in their order, the settings of each."""
    live = word == "vsock"
    for index in range(max(len(desired), len(actual))):
        path = f"{word}:{index}" if index else word
        new, old = (items[index] if index < len(items) else None for items in (desired, actual))
        if old is None and new is not None:
            yield Change(word, path, None, new.model or True, "attach", live, _text(new))
        elif new is None and old is not None:
            yield Change(word, path, old.model or True, None, "detach", live, _text(old))
        elif new is not None and old is not None:
            after, before = normal.devices(new, old)
            for name in _differing(after, before):
                yield Change(word, f"{path}:{name}", before.get(name), after.get(name))


def _list(name: str, desired: Domain, actual: Domain) -> Iterator[Change]:
    """Compare devices without names, in their order."""
    new, old = list(getattr(desired, name)), list(getattr(actual, name))
    if name in ADDED:
        yield from _required_devices(name, new, old)
        return
    if name == "consoles":
        new, old = normal.consoles(desired, actual)
    if name == "watchdogs" and not new and [item.model for item in old] == ["itco"]:
        return  # built into the machine type q35
    if len(new) == len(old):
        pairs = [normal.devices(*pair) for pair in zip(new, old, strict=True)]
        if all(first == second for first, second in pairs):
            return
    before, after = ([_text(item) for item in items] for items in (old, new))
    yield Change(name, name, before, after)


def _required_devices(name: str, new: list[Any], old: list[Any]) -> Iterator[Change]:
    """Compare kinds of devices that libvirt also adds itself: the requested devices must exist."""
    unmatched = list(old)
    for device in new:
        hit = next((item for item in unmatched if _equal(device, item)), None)
        numbered = _same_controller(device, old) if name == "controllers" and hit is None else None
        if numbered is not None:
            after, before = normal.devices(device, numbered)
            for word in _differing(after, before):
                path = f"{name}:{device.type}{device.index}:{word}"
                yield Change(name, path, before.get(word), after.get(word))
        elif hit is None:
            live = name == "controllers" and device.type == "scsi"
            yield Change(name, name, None, _text(device), "attach", live, _text(device))
        else:
            unmatched.remove(hit)
    for device in unmatched:
        if name == "channels" or (name == "inputs" and device.bus not in BUILT_IN):
            yield Change(name, name, _text(device), None, "detach", xml=_text(device))


def _same_controller(desired: Controller, actual: list[Controller]) -> Controller | None:
    """The existing controller with the number of the desired one, whose settings differ."""
    key = desired.type, desired.index
    return next((i for i in actual if None not in key and (i.type, i.index) == key), None)


def _equal(desired: Element, actual: Element) -> bool:
    new, old = normal.devices(desired, actual)
    return new == old


def _balloon(desired: Domain, actual: Domain) -> Iterator[Change]:
    if not desired.memballoon:
        return
    if not actual.memballoon:
        yield Change("memballoon", "memballoon", None, desired.memballoon.model)
        return
    new, old = normal.devices(desired.memballoon, actual.memballoon)
    for name in _differing(new, old):
        yield Change("memballoon", f"memballoon:{name}", old.get(name), new.get(name))
