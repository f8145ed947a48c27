"""States of volumes, with their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units
from saltvirt.states.outcome import StateOutcome

if TYPE_CHECKING:
    from saltvirt.spec.volume import VolumeSpec
    from saltvirt.states.result import Answer, StateHost

# pools that round sizes up to extents or cylinders
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
    """The desired volume: the pool's name, the VolumeSpec, and whether it may be shrunk."""

    pool: str
    spec: VolumeSpec
    shrink: bool = False

    @property
    def subject(self) -> str:
        """The name of the volume for messages."""
        return f"volume {self.spec.name} in storage pool {self.pool}"


@dataclass(frozen=True)
class VolumeFacts:
    """The actual volume.

    type, format: libvirt's names. backing: (path, format) of its backing image. mode: four octal
    digits. users: running guests that have it open.
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


def created(desired: DesiredVolume, pool_exists: bool = True) -> StateOutcome:
    """The StateOutcome if the volume does not exist. pool_exists: False in a test before its pool
    is defined."""
    outcome = StateOutcome(desired.subject)
    outcome.switch("defined", False, True, "defined")
    if not pool_exists:
        outcome.notes.append(f"There is no storage pool {desired.pool} yet: define and start it")
    return outcome


def needs_users(desired: DesiredVolume, facts: VolumeFacts) -> bool:
    """Whether its users are relevant: for another size, owner or group."""
    options = desired.spec.permissions
    owned = options is not None and (options.owner, options.group) != (None, None)
    return owned or not _fits(desired, facts)


def changed(desired: DesiredVolume, facts: VolumeFacts) -> StateOutcome:
    """The StateOutcome of an existing volume.

    Raises OperationFailed for settings that cannot be changed.
    """
    _refuse_other(desired, facts)
    outcome = StateOutcome(desired.subject)
    _size(desired, facts, outcome)
    _permissions(desired, facts, outcome)
    return outcome


def _refuse_other(desired: DesiredVolume, facts: VolumeFacts) -> None:
    """Refuse changes of settings that a volume keeps."""
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
            f"{' and '.join(mismatches)}; these cannot be changed in an existing volume"
        )


def _backing(pair: tuple[Any, Any] | None) -> str:
    return f"{pair[0]} ({pair[1]})" if pair else "none"


def _fits(desired: DesiredVolume, facts: VolumeFacts) -> bool:
    """Whether the volume has the size, as rounded by its pool."""
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
            f"more than {units.human_bytes(size_bytes)}; shrink: True shrinks it"
        )
    if facts.users:
        raise errors.OperationFailed(
            f"{desired.subject} cannot become {units.human_bytes(size_bytes)} as it is open in "
            f"{', '.join(facts.users)}; virt.resize_disk grows the disk of a running guest"
        )
    outcome.switch("size_bytes", current_bytes, size_bytes, "resized")


def _permissions(desired: DesiredVolume, facts: VolumeFacts, outcome: StateOutcome) -> None:
    """Compare permissions. While a guest runs, libvirt changes the owner, so owner and group are
    not compared."""
    requested = desired.spec.permissions
    for name in ("mode", "label", *(() if facts.users else ("owner", "group"))):
        new = getattr(requested, name, None)
        if new is not None:
            outcome.switch(name, getattr(facts, name), new, "its permissions changed")
