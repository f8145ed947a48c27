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


def _profile(more: Mapping[str, Any], short: str, update: bool) -> Any:
    """The profile's name: ``disk`` or ``disk_profile``; the default one unless told none."""
    for word in (f"{short}_profile", short):
        value = more.get(word, _ABSENT)
        if value is not _ABSENT and (value is not None or word == short):
            return value
    return None if update else profiles.DEFAULT


def fill(spec: GuestSpec, more: Mapping[str, Any], known: Profiles, update: bool) -> None:
    """Sets disks and nics of a GuestSpec; None where an update leaves them alone."""
    for short, extra, target, cls in (
        ("disk", "disks", "disks", DiskSpec),
        ("nic", "interfaces", "nics", NicSpec),
    ):
        profile, own = _profile(more, short, update), more.get(extra)
        if profile is None and own is None:
            setattr(spec, target, None if update else [])
            continue
        if own is not None and not isinstance(own, list | tuple):
            raise InvalidInput(f"{extra} must be a list of dictionaries, not {own!r}")
        if short == "disk":
            found = profiles.disks(known, profile, own)
        else:
            # a guest that is there keeps its models, whatever a new one would get
            hypervisor = None if update else spec.hypervisor
            found = profiles.nics(known, profile, own, hypervisor, update)
        setattr(spec, target, _parsed(cls, found, extra))
        if short == "disk" and profile == profiles.DEFAULT not in known.disk:
            _mark_default(spec.disks or [], own or ())


def _mark_default(disks: list[DiskSpec], own: Iterable[Device]) -> None:
    """Marks the sizes that nobody asked for."""
    sized = {item["name"] for item in own if item.get("size") is not None and "name" in item}
    for disk in disks:
        disk.size_is_default = disk.name in profiles.DEFAULT_NAMES - sized


def _parsed(cls: type[DiskSpec | NicSpec], found: Iterable[Any], what: str) -> list[Any]:
    result = []
    for at, item in enumerate(found):
        label = item.get("name", at) if isinstance(item, dict) else at
        result.append(cls.parse(item, f"{what}:{label}"))
    seen = [item.name for item in result if item.name]
    twice = {name for name in seen if seen.count(name) > 1}
    if twice:
        raise InvalidInput(f"{what}: the name {sorted(twice)[0]!r} is there twice")
    return result
