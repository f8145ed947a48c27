"""What the user asked for of the guest's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Part, given, key, part


@dataclass
class PageSpec(Part):
    """Huge pages of one size, for some NUMA cells."""

    size_kib: int | None = key(values.kib, name="size")
    nodeset: str | None = key(values.cpuset)


def _hugepages(value: Any, what: str) -> list[PageSpec]:
    """A list of pages, or True for the host's default size."""
    if isinstance(value, bool):
        return [PageSpec()] if value else []
    return values.list_of(part(PageSpec))(value, what)


@dataclass
class MemorySpec(Part):
    """The ``mem`` argument; numbers without a unit are MiB."""

    boot_kib: int | None = key(values.kib, name="boot")
    current_kib: int | None = key(values.kib, name="current")
    max_kib: int | None = key(values.kib, name="max")
    slots: int | None = key(values.count)
    hard_limit_kib: int | None = key(values.kib, name="hard_limit")
    soft_limit_kib: int | None = key(values.kib, name="soft_limit")
    swap_hard_limit_kib: int | None = key(values.kib, name="swap_hard_limit")
    min_guarantee_kib: int | None = key(values.kib, name="min_guarantee")
    hugepages: list[PageSpec] | None = key(_hugepages)
    nosharepages: bool | None = key(values.boolean)
    locked: bool | None = key(values.boolean)
    source: str | None = key(values.choice("file", "anonymous", "memfd"))
    access: str | None = key(values.choice("shared", "private"))
    allocation: str | None = key(values.choice("immediate", "ondemand"))
    discard: bool | None = key(values.boolean)

    def check(self, what: str) -> None:
        boot, current, most = given(self.boot_kib), given(self.current_kib), given(self.max_kib)
        if boot and current and current > boot:
            raise InvalidInput(f"{what}: current is more than boot")
        if boot and most and boot > most:
            raise InvalidInput(f"{what}: boot is more than max")
        if most and self.slots is None:
            raise InvalidInput(f"{what}: max needs slots, the number of memory modules to add")


def parse_memory(value: Any, what: str = "mem") -> MemorySpec:
    """A MemorySpec from a size in MiB (or with a unit) or a dictionary; None or 0 say nothing."""
    if value in (None, 0, "", "0"):
        return MemorySpec()
    if isinstance(value, dict):
        return MemorySpec.parse(value, what)
    return MemorySpec(boot_kib=values.kib(value, what))
