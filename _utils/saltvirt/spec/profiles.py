"""Disk and NIC profiles: named lists of devices from the configuration.

Both YAML forms are supported: ``- system: {size: 8192}`` and, as in Salt's documentation,
``- system:`` with ``size: 8192`` as its sibling.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saltvirt import settings, units
from saltvirt.errors import InvalidInput
from saltvirt.spec.base import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from saltvirt.settings import Get

# a disk or an interface as given by the user
Device = dict[str, Any]

DEFAULT = "default"
DISKS = [{"name": "system", "size": 8192}]
DEFAULT_NAMES = {disk["name"] for disk in DISKS}
NICS = [{"name": "eth0"}]
_QEMU = {"device": "disk", "format": "qcow2", "model": "virtio"}
DISK_DEFAULTS: dict[str, Device] = {
    "kvm": _QEMU,
    "qemu": _QEMU,
    "test": _QEMU,
    "xen": {"device": "disk", "format": "qcow2", "model": "xen"},
    "vmware": {"device": "disk", "format": "vmdk", "model": "scsi"},
    "bhyve": {"device": "disk", "format": "raw", "model": "virtio", "sparse_volume": False},
    "lxc": {"device": "disk"},
}
# keys of an interface that give its type and source
_KINDS = ("bridge", "network", "direct", "hostdev")
BRIDGE: Device = {"type": "bridge", "source": "br0"}
NIC_DEFAULTS: dict[str, Device] = {
    "kvm": {**BRIDGE, "model": "virtio"},
    "qemu": {**BRIDGE, "model": "virtio"},
    "test": {**BRIDGE, "model": "virtio"},
    "xen": BRIDGE,
    "lxc": BRIDGE,
    "vmware": {"type": "bridge", "source": "DEFAULT", "model": "e1000"},
    "bhyve": {"type": "bridge", "source": "bridge0", "model": "virtio"},
}
for _table in (DISK_DEFAULTS, NIC_DEFAULTS):
    _table["esxi"] = _table["esx"] = _table["vmware"]
    _table["hvf"] = _table["kvm"]


@dataclass
class Profiles:
    """The configured profiles."""

    disk: dict[Any, Any] = field(default_factory=dict)
    nic: dict[Any, Any] = field(default_factory=dict)


def read(get: Get) -> Profiles:
    """The Profiles of a configuration; ``get`` is Salt's config.get."""
    return Profiles(settings.mapping(get, "disk"), settings.mapping(get, "nic"))


def _items(content: Any, argument: str) -> Iterator[Device]:
    """The devices of a profile: plain dictionaries with their ``name``."""
    if isinstance(content, dict):
        content = [{name: device} for name, device in content.items()]
    if not isinstance(content, list | tuple):
        raise InvalidInput(f"{argument} must be a list or a dictionary of devices")
    for entry in content:
        if not isinstance(entry, dict) or not entry:
            raise InvalidInput(f"{argument}: {units.short_repr(entry)} is not a device")
        yield from _named_devices(entry, argument)


def _named_devices(entry: Device, argument: str) -> Iterator[Device]:
    heads = [name for name, value in entry.items() if value is None or isinstance(value, dict)]
    if "name" in entry:
        yield copy.deepcopy(entry)
    elif len(heads) == len(entry):
        for name, device in entry.items():
            yield {**copy.deepcopy(device or {}), "name": name}
    elif len(heads) == 1 and entry[heads[0]] is None:
        rest = {k: copy.deepcopy(v) for k, v in entry.items() if k != heads[0]}
        yield {**rest, "name": heads[0]}
    else:
        raise InvalidInput(f"{argument}: {units.short_repr(entry)} has no name")


def _content(
    table: Mapping[Any, Any], name: object, fallback: list[Device], kind: str
) -> list[Device]:
    if not isinstance(name, (str, int)):
        raise InvalidInput(f"{kind} profile {name!r} is not the name of a profile")
    if name in table:
        return list(_items(table[name], f"virt:{kind}:{name}"))
    if name == DEFAULT:
        return copy.deepcopy(fallback)
    raise unknown(name, sorted({*table, DEFAULT}), f"{kind} profile")


def _merge(devices: Iterable[Device], extra: Iterable[Any] | None, argument: str) -> list[Device]:
    """Merge the caller's devices into the profile's, by name."""
    merged = [dict(device) for device in devices]
    for index, device in enumerate(extra or ()):
        if not isinstance(device, dict):
            raise InvalidInput(f"{argument}[{index}] must be a dictionary, not {device!r}")
        same = [m for m in merged if "name" in device and m.get("name") == device["name"]]
        if same:
            same[0].update(copy.deepcopy(device))
        else:
            merged.append(copy.deepcopy(device))
    return merged


def disks(profiles: Profiles, name: object, extra: Iterable[Any] | None = None) -> list[Device]:
    """The disks of a profile (None: no profile), merged with the caller's, as dictionaries.

    Raises InvalidInput with the existing profiles if the profile does not exist.
    """
    profile_disks = _content(profiles.disk, name, DISKS, "disk") if name else []
    return _merge(profile_disks, extra, "disks")


def nics(
    profiles: Profiles,
    name: object,
    extra: Iterable[Any] | None = None,
    hypervisor: str | None = None,
    update: bool = False,
) -> list[Device]:
    """The interfaces of a profile, merged with the caller's; missing values are the hypervisor's
    defaults.

    Without a hypervisor, the model depends on the host's capabilities. update: an interface that is
    identified by its MAC and has no other settings stays connected to its network.
    """
    profile_nics = _content(profiles.nic, name, NICS, "nic") if name else []
    merged = _merge(map(_source, profile_nics), map(_source, extra or ()), "interfaces")
    defaults = NIC_DEFAULTS.get(hypervisor or "", BRIDGE)
    return [nic if update and _means_existing(nic) else _complete(nic, defaults) for nic in merged]


def _means_existing(nic: Any) -> bool:
    return (
        isinstance(nic, dict)
        and bool(nic.get("mac"))
        and not (nic.get("type") or nic.get("source"))
    )


def _source(nic: Any) -> Any:
    """``bridge: br0`` as ``type: bridge``, ``source: br0``; also network, direct and hostdev."""
    if not isinstance(nic, dict):
        return nic
    nic = copy.deepcopy(nic)
    kinds = [kind for kind in _KINDS if nic.get(kind)]
    if "hostdev" in kinds and len(kinds) > 1:
        raise InvalidInput(
            f"interface {nic.get('name') or nic.get('mac') or ''}: "
            f"{' and '.join(kinds)} exclude each other: give one"
        )
    for kind in _KINDS:
        if kind in nic:
            nic["source"], nic["type"] = nic.pop(kind), kind
    return nic


def _complete(nic: Device, defaults: Mapping[str, Any]) -> Device:
    """Set default type and source together, so that the name of a bridge is never used for a
    network."""
    if not nic.get("type") and nic.get("source"):
        nic["type"] = defaults.get("type", "bridge")
    for key, value in defaults.items():
        if key == "source" and nic.get("type") != defaults.get("type"):
            continue
        if key == "model" and nic.get("type") == "hostdev":
            continue  # the device has its own
        if not nic.get(key):
            nic[key] = value
    return nic


def show(profiles: Profiles, hypervisor: object = "kvm") -> dict[str, dict[str, list[Device]]]:
    """All profiles with defaults: ``{"disk": {name: [...]}, "nic": {...}}``."""
    result: dict[str, dict[str, list[Device]]] = {"disk": {}, "nic": {}}
    hypervisor = str(hypervisor)
    for name in {DEFAULT: None, **profiles.disk}:
        result["disk"][name] = [
            {**_defaults(disk, hypervisor), **disk} for disk in disks(profiles, name)
        ]
    for name in {DEFAULT: None, **profiles.nic}:
        result["nic"][name] = nics(profiles, name, hypervisor=hypervisor)
    return result


def _defaults(disk: Device, hypervisor: str) -> Device:
    """Return the defaults of a disk; a drive has none."""
    is_drive = disk.get("device", "disk") != "disk"
    return {} if is_drive else DISK_DEFAULTS.get(hypervisor, {})
