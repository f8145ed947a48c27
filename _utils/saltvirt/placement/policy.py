"""The operator's settings of placement in ``virt:placement``.

The master's policy accompanies every request to a host, which applies it to admit the guest.
Stricter settings in a host's own configuration also apply.

The default ratios are those of Nova (cpu 4, ram 1, disk 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from saltvirt import settings, units
from saltvirt.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# preferred labels outweigh all other weights together
WEIGHTS = {
    "memory": 1.0, "vcpu": 0.5, "disk": 0.5, "image": 0.25, "labels": 4.0, "spread": 1.0,
}  # fmt: skip
# for these the smaller setting is the stricter one, for others the larger
_LOOSER_IS_MORE = ("cpu_ratio", "memory_ratio", "disk_ratio")


@dataclass(frozen=True)
class PlacementPolicy:
    """How full a host may get, and what makes one host better than another.

    cpu_ratio, memory_ratio, disk_ratio: promised over physical; a host may set its own.
    stopped_ratio: fraction of a stopped guest that counts, 0 to 1; autostarted guests count in
    full.

    reserved_memory_kib, reserved_memory_ratio, reserved_memory_most_kib: memory reserved for the
    host: this fraction, at least the first, and at most the last unless the first is more. Nova
    reserves 512 MiB; XenServer gives its control domain 5 % up to 8 GiB.

    overhead_kib, overhead_vcpu_kib, overhead_ratio: overhead of QEMU: per guest, per vCPU, and the
    fraction for page tables. KubeVirt counts 30 MiB for QEMU, 32 MiB for its display, 8 MiB per
    vCPU and a 512th of the memory.

    reserved_disk_bytes: must stay free on the file system of the images folder. weights: weigher to
    its multiplier; 0 disables it. exclude: hosts that get no guests.
    """

    cpu_ratio: float = 4.0
    memory_ratio: float = 1.0
    disk_ratio: float = 1.0
    stopped_ratio: float = 1.0
    reserved_memory_kib: int = 512 * 1024
    reserved_memory_ratio: float = 0.05
    reserved_memory_most_kib: int = 8 * 1024**2
    overhead_kib: int = 62 * 1024
    overhead_vcpu_kib: int = 8 * 1024
    overhead_ratio: float = 1 / 512
    reserved_disk_bytes: int = 1024**3
    weights: dict[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    exclude: tuple[str, ...] = ()

    def reserve_kib(self, memory_kib: int) -> float:
        """The memory reserved for a host with that much memory."""
        share = min(memory_kib * self.reserved_memory_ratio, self.reserved_memory_most_kib)
        return max(self.reserved_memory_kib, share)

    def to_wire(self) -> dict[str, Any]:
        """The part that accompanies a request to a host, for ``from_config`` there."""
        return {key: getattr(self, key) for key in sorted(SETTINGS)}

    def stricter(self, host_settings: Mapping[str, float]) -> PlacementPolicy:
        """The policy with those settings of the host (checked) that are stricter."""
        changes = {}
        for key, value in host_settings.items():
            pick = min if key in _LOOSER_IS_MORE else max
            changes[key] = pick(value, getattr(self, key))
        return replace(self, **changes) if changes else self


SETTINGS = frozenset(f.name for f in fields(PlacementPolicy)) - {"exclude", "weights"}


def of_master(opts: Mapping[str, Any]) -> PlacementPolicy:
    """The PlacementPolicy of the master with these options."""
    get = settings.of_master(opts)
    return from_config(settings.mapping(get, "placement"), settings.name_list(get, "exclude"))


def from_config(placement: object, exclude: Iterable[str] | None = ()) -> PlacementPolicy:
    """The policy in the mapping ``virt:placement``. Raises InvalidInput for unknown keys."""
    placement = mapping(placement, "virt:placement")
    weights = mapping(placement.pop("weights", None), "virt:placement:weights")
    limits(placement)
    unknown = sorted(set(weights) - set(WEIGHTS), key=str)
    if unknown:
        raise _unknown(unknown)
    for key, value in weights.items():
        number(value, key, "virt:placement")
    return replace(
        PlacementPolicy(**placement), weights={**WEIGHTS, **weights}, exclude=tuple(exclude or ())
    )


def limits(placement: object) -> dict[str, Any]:
    """The settings of a host's own ``virt:placement`` that can be stricter than the master's.

    Raises InvalidInput for unknown keys and for values that are not numbers.
    """
    placement = mapping(placement, "virt:placement")
    placement.pop("weights", None)  # the master ranks
    unknown = sorted(set(placement) - SETTINGS, key=str)
    if unknown:
        raise _unknown(unknown)
    for key, value in placement.items():
        number(value, key, "virt:placement")
    return placement


RATIOS = ("cpu", "memory", "disk")
# far above the size of any host, so that sums stay finite
_MAX_NUMBER = 2**60


def ratios(raw: object) -> dict[str, Any]:
    """A host's own ``virt:ratios``. Raises InvalidInput that names the ratio."""
    raw = mapping(raw, "virt:ratios")
    for key, value in raw.items():
        if key not in RATIOS:
            raise InvalidInput(f"virt:ratios: unknown ratio {key}; known: {', '.join(RATIOS)}")
        number(value, key, "virt:ratios")
    return raw


def mapping(value: object, setting: str) -> dict[str, Any]:
    """The setting as a dictionary. Raises InvalidInput for any other type."""
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{setting} must be a mapping, not {units.short_repr(value)}")
    return dict(value or {})


def _unknown(names: Iterable[object]) -> InvalidInput:
    return InvalidInput(
        f"virt:placement: unknown setting {', '.join(map(str, names))}; "
        f"known: {', '.join(sorted(SETTINGS))}, weights of {', '.join(sorted(WEIGHTS))}"
    )


def number(value: Any, key: str, setting: str) -> None:
    """Raise InvalidInput unless the value is a finite number of at least 0."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if fits and value > _MAX_NUMBER:
        raise InvalidInput(f"{setting}: {key} is larger than 2^60")
    if not fits or not value >= 0:
        raise InvalidInput(
            f"{setting}: {key} must be a number from 0, not {units.short_repr(value)}"
        )
