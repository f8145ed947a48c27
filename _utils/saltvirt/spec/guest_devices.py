"""The disks and interfaces of a guest: a profile with the caller's overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import profiles
from saltvirt.spec.disk import DiskSpec
from saltvirt.spec.nic import NicSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.spec.profiles import Device, Profiles

QEMU = ("kvm", "qemu", "hvf")
_ABSENT = object()


def _profile(options: Mapping[str, Any], kind: str, update: bool) -> Any:
    """The profile's name, from ``disk`` or ``disk_profile``; by default the profile ``default``."""
    for word in (f"{kind}_profile", kind):
        value = options.get(word, _ABSENT)
        if value is not _ABSENT and (value is not None or word == kind):
            return value
    return None if update else profiles.DEFAULT


def fill(
    spec: GuestSpec, options: Mapping[str, Any], host_profiles: Profiles, update: bool
) -> None:
    """Set disks and nics of a GuestSpec; None if an update does not change them."""
    for kind, extra, target, cls in (
        ("disk", "disks", "disks", DiskSpec),
        ("nic", "interfaces", "nics", NicSpec),
    ):
        profile, requested = _profile(options, kind, update), options.get(extra)
        if profile is None and requested is None:
            setattr(spec, target, None if update else [])
            continue
        if requested is not None and not isinstance(requested, list | tuple):
            raise InvalidInput(f"{extra} must be a list of dictionaries, not {requested!r}")
        if kind == "disk":
            merged = profiles.disks(host_profiles, profile, requested)
        else:
            # an existing guest keeps its models
            hypervisor = None if update else spec.hypervisor
            if spec.os and hypervisor in QEMU:
                hypervisor = None  # the operating system decides on the model
            merged = profiles.nics(host_profiles, profile, requested, hypervisor, update)
        setattr(spec, target, _parse_devices(cls, merged, extra))
        if kind == "disk" and profile == profiles.DEFAULT not in host_profiles.disk:
            _mark_default(spec.disks or [], requested or ())


def _mark_default(disks: list[DiskSpec], requested: Iterable[Device]) -> None:
    """Mark sizes that the user did not give."""
    sized = {item["name"] for item in requested if item.get("size") is not None and "name" in item}
    for disk in disks:
        disk.size_is_default = disk.name in profiles.DEFAULT_NAMES - sized


def _parse_devices(cls: type[DiskSpec | NicSpec], items: Iterable[Any], argument: str) -> list[Any]:
    result = []
    for index, item in enumerate(items):
        label = item.get("name", index) if isinstance(item, dict) else index
        result.append(cls.parse(item, f"{argument}:{label}"))
    item_names = [item.name for item in result if item.name]
    twice = {name for name in item_names if item_names.count(name) > 1}
    if twice:
        raise InvalidInput(f"{argument}: the name {sorted(twice)[0]!r} is given twice")
    return result
