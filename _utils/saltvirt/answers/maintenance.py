"""Answer about the maintenance of a host."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message


@dataclass(frozen=True)
class MaintenanceMark(Message):
    """Answer of `virt.maintenance`, and content of the mark's file. reason: why the host accepts no
    guests; None if it accepts them again but has not got all its guests back. guests: names of
    guests that were moved away."""

    reason: str | None
    guests: tuple[str, ...]
