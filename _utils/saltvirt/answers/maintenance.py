"""What a host answers when it is asked whether it takes guests."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message


@dataclass(frozen=True)
class MaintenanceMark(Message):
    """What `virt.maintenance` answers of a host that has one, and its file. reason: why the host
    takes no guests; None when it takes them again and has not got all of its own back. guests: the
    names of those that were moved away."""

    reason: str | None
    guests: tuple[str, ...]
