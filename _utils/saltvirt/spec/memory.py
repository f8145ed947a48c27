"""The user's arguments for the memory of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested, value_or_none
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.memory_backing import MemoryBacking
from saltvirt.xml.domain.memtune import MemTune

# no operating system runs with less
_MIN_KIB = 8 * 1024


def kib_at_start(size: object) -> int:
    """Return the memory with which a guest starts in KiB. Raises InvalidInput, also for a size that
    was meant in GiB."""
    kib = units.parse_kib(size, argument="mem")
    if kib < _MIN_KIB:
        given = units.human_bytes(kib * 1024)
        raise InvalidInput(
            f"mem={units.short_repr(size)} is {given}: give MiB, or a size with a unit, as in 2G"
        )
    return kib


@dataclass
class PageSpec(Spec):
    """Huge pages of one size, for some NUMA cells."""

    size_kib: int | None = key(values.kib, name="size")
    nodeset: str | None = key(values.cpuset)


def _hugepages(value: Any, argument: str) -> list[PageSpec]:
    """A list of pages, or True for the host's default size."""
    if isinstance(value, bool):
        return [PageSpec()] if value else []
    return values.list_of(nested(PageSpec))(value, argument)


@dataclass
class MemorySpec(Spec):
    """The ``mem`` argument; numbers without a unit are MiB."""

    max_kib: int | None = key(values.kib, name="max", xml=Domain.max_memory_kib)
    slots: int | None = key(values.count, xml=Domain.memory_slots)
    boot_kib: int | None = key(values.kib, name="boot", xml=Domain.memory_kib)
    current_kib: int | None = key(values.kib, name="current", xml=Domain.current_memory_kib)
    hard_limit_kib: int | None = key(values.kib, name="hard_limit", xml=MemTune.hard_limit_kib)
    soft_limit_kib: int | None = key(values.kib, name="soft_limit", xml=MemTune.soft_limit_kib)
    swap_hard_limit_kib: int | None = key(
        values.kib, name="swap_hard_limit", xml=MemTune.swap_hard_limit_kib
    )
    min_guarantee_kib: int | None = key(
        values.kib, name="min_guarantee", xml=MemTune.min_guarantee_kib
    )
    hugepages: list[PageSpec] | None = key(_hugepages)
    nosharepages: bool | None = key(values.boolean, xml=MemoryBacking.nosharepages)
    locked: bool | None = key(values.boolean, xml=MemoryBacking.locked)
    source: str | None = key(values.choice("file", "anonymous", "memfd"), xml=MemoryBacking.source)
    access: str | None = key(values.choice("shared", "private"), xml=MemoryBacking.access)
    allocation: str | None = key(
        values.choice("immediate", "ondemand"), xml=MemoryBacking.allocation
    )
    discard: bool | None = key(values.boolean, xml=MemoryBacking.discard)

    def check(self, argument: str) -> None:
        boot, current, maximum = (
            value_or_none(self.boot_kib),
            value_or_none(self.current_kib),
            value_or_none(self.max_kib),
        )
        if boot and current and current > boot:
            raise InvalidInput(f"{argument}: current is more than boot")
        if boot and maximum and boot > maximum:
            raise InvalidInput(f"{argument}: boot is more than max")
        if maximum and self.slots is None:
            raise InvalidInput(f"{argument}: max needs slots, the number of memory modules to add")


def parse_memory(value: Any, argument: str = "mem") -> MemorySpec:
    """A MemorySpec from a size in MiB (or with a unit) or a dictionary; None or 0 mean "not
    given"."""
    if value in (None, 0, "", "0"):
        return MemorySpec()
    if isinstance(value, dict):
        return MemorySpec.parse(value, argument)
    return MemorySpec(boot_kib=values.kib(value, argument))
