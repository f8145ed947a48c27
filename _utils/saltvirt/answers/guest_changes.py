"""Answers about changed guests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class Difference(Message):
    """A change of a guest. path: the setting, such as `memory_kib` or `disks:vdb`. old, new: its
    values; None if absent. live: the running guest has it."""

    path: str
    old: Any = None
    new: Any = None
    live: bool = False


@dataclass(frozen=True)
class UpdatedGuest(Message):
    """Answer of `virt.update`. pending: the changes that take effect at the next start, as texts.
    errors: the changes that the running guest refused. warnings: settings that were left unchanged,
    with the reasons. missing: what was to be detached and does not exist, such as `disk data`.
    absent: files of `boot` that the host does not have, such as `kernel /boot/k`. duplicates: new
    MACs that another guest of the host has, such as `52:54:00:00:00:01 of web2`."""

    changes: tuple[Difference, ...] = ()
    pending: tuple[str, ...] = optional(())
    errors: tuple[str, ...] = optional(())
    warnings: tuple[str, ...] = optional(())
    missing: tuple[str, ...] = optional(())
    absent: tuple[str, ...] = optional(())
    duplicates: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class ResizedDisk(Message):
    """Answer of `virt.resize_disk`. before, after: size of the disk in bytes."""

    before: int
    after: int
