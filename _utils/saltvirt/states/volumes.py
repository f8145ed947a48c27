"""Volumes as they shall be: what differs, and the states that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units
from saltvirt.states.outcome import StateOutcome

if TYPE_CHECKING:
    from saltvirt.spec.volume import VolumeSpec
    from saltvirt.states.result import Answer, StateHost

# these round a size up to whole extents or cylinders
_ROUNDED = {"logical": 64 << 20, "disk": 16 << 20, "zfs": 1 << 20}
_SECTOR = 512


def defined(host: StateHost, name: str, pool: str, **options: Any) -> Answer:
    """See ``virt.volume_defined``."""
    return host.converged(name, "volume_converge", pool, name, **options)


def absent(host: StateHost, name: str, pool: str, force: bool) -> Answer:
    """See ``virt.volume_absent``."""
    return host.converged(name, "volume_remove", pool, name, force)


@dataclass(frozen=True)
class DesiredVolume:
    """The pool's name, the VolumeSpec, and whether the volume may become smaller."""

    pool: str
    spec: VolumeSpec
    shrink: bool = False

    @property
    def subject(self) -> str:
        """The words for it."""
        return f"volume {self.spec.name} in storage pool {self.pool}"


@dataclass(frozen=True)
class VolumeFacts:
    """A volume as it is.

    type, format: in libvirt's words. backing: (path, format) of what it is based on. mode: four
    octal digits. users: the running guests that have it open.
    """

    pool_type: str | None
    type: str
    format: str | None
    backing: tuple[str, str | None] | None
    size_bytes: int
    mode: str | None
    owner: int | None
    group: int | None
    label: str | None
    users: tuple[str, ...] = ()


def created(desired: DesiredVolume) -> StateOutcome:
    """The Outcome where there is no such volume."""
    outcome = StateOutcome(desired.subject)
    outcome.switch("defined", False, True, "defined")
    return outcome


def needs_users(desired: DesiredVolume, facts: VolumeFacts) -> bool:
    """Whether it matters who uses it: another size, owner or group."""
    options = desired.spec.permissions
    owned = options is not None and (options.owner, options.group) != (None, None)
    return owned or not _fits(desired, facts)


def changed(desired: DesiredVolume, facts: VolumeFacts) -> StateOutcome:
    """The Outcome for a volume that is there.

    Raises OperationFailed for what cannot be changed in it.
    """
    _refuse_other(desired, facts)
    outcome = StateOutcome(desired.subject)
    _size(desired, facts, outcome)
    _permissions(desired, facts, outcome)
    return outcome


def _refuse_other(desired: DesiredVolume, facts: VolumeFacts) -> None:
    """What a volume is made as stays so."""
    spec, mismatches = desired.spec, []
    if spec.type and spec.type != facts.type:
        mismatches.append(f"type {facts.type}, not {spec.type}")
    if spec.format and facts.format and spec.format != facts.format:
        mismatches.append(f"format {facts.format}, not {spec.format}")
    backing_store = (
        (spec.backing_store.path, spec.backing_store.format) if spec.backing_store else None
    )
    if backing_store != facts.backing:
        mismatches.append(f"backing store {_backing(facts.backing)}, not {_backing(backing_store)}")
    if mismatches:
        raise errors.OperationFailed(
            f"volume {spec.name} is in storage pool {desired.pool} with another "
            f"{' and '.join(mismatches)}; this cannot be changed in a volume that is there"
        )


def _backing(pair: tuple[Any, Any] | None) -> str:
    return f"{pair[0]} ({pair[1]})" if pair else "none"


def _fits(desired: DesiredVolume, facts: VolumeFacts) -> bool:
    """Whether it has the size, as its pool rounds it."""
    size_bytes = desired.spec.size_bytes or 0
    return (
        size_bytes <= facts.size_bytes < size_bytes + _ROUNDED.get(facts.pool_type or "", _SECTOR)
    )


def _size(desired: DesiredVolume, facts: VolumeFacts, outcome: StateOutcome) -> None:
    size_bytes, current_bytes = desired.spec.size_bytes or 0, facts.size_bytes
    if _fits(desired, facts):
        return
    if size_bytes < current_bytes and not desired.shrink:
        raise errors.OperationFailed(
            f"{desired.subject} has {units.human_bytes(current_bytes)}, "
            f"more than {units.human_bytes(size_bytes)}; shrink: True cuts it off"
        )
    if facts.users:
        raise errors.OperationFailed(
            f"{desired.subject} cannot become "
            f"{units.human_bytes(size_bytes)} as it is open in {', '.join(facts.users)}; "
            "virt.resize_disk grows the disk of a running guest"
        )
    outcome.switch("size_bytes", current_bytes, size_bytes, "resized")


def _permissions(desired: DesiredVolume, facts: VolumeFacts, outcome: StateOutcome) -> None:
    """While a guest runs, libvirt lends it the file: owner and group are not compared then."""
    requested = desired.spec.permissions
    for name in ("mode", "label", *(() if facts.users else ("owner", "group"))):
        new = getattr(requested, name, None)
        if new is not None:
            outcome.switch(name, getattr(facts, name), new, "its permissions changed")
