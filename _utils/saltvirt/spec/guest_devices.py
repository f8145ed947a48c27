"""A guest's disks and interfaces: a profile with what the caller laid over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import profiles
from saltvirt.spec.disk import DiskSpec
from saltvirt.spec.nic import NicSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.spec.guest import GuestSpec
    from saltvirt.spec.profiles import Device, Profiles

_ABSENT = object()


def _profile(options: Mapping[str, Any], kind: str, update: bool) -> Any:
    """The profile's name: ``disk`` or ``disk_profile``; the default one unless told none."""
    for word in (f"{kind}_profile", kind):
        value = options.get(word, _ABSENT)
        if value is not _ABSENT and (value is not None or word == kind):
            return value
    return None if update else profiles.DEFAULT


def fill(
    spec: GuestSpec, options: Mapping[str, Any], host_profiles: Profiles, update: bool
) -> None:
    """Sets disks and nics of a GuestSpec; None where an update leaves them alone."""
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
            # a guest that is there keeps its models, whatever a new one would get
            hypervisor = None if update else spec.hypervisor
            merged = profiles.nics(host_profiles, profile, requested, hypervisor, update)
        setattr(spec, target, _parse_devices(cls, merged, extra))
        if kind == "disk" and profile == profiles.DEFAULT not in host_profiles.disk:
            _mark_default(spec.disks or [], requested or ())


def _mark_default(disks: list[DiskSpec], requested: Iterable[Device]) -> None:
    """Marks the sizes that nobody asked for."""
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
        raise InvalidInput(f"{argument}: the name {sorted(twice)[0]!r} is there twice")
    return result
