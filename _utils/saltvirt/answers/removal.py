"""Answers about removals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class RemovalPlan(Message):
    """Answer of `virt.purge` and `virt.remove_made` to `test=True`. delete: paths; keep: path to
    the reason. shared: path to the FileIdentity by which other hosts are queried about it; the
    master passes it on unchanged; unsure: the guest's own disks that are kept."""

    delete: tuple[str, ...] = ()
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = optional({})
    unsure: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class VolumeRemoval(Message):
    """Answer of `virt.remove_volume`. path: libvirt's path of the volume. allocation: in bytes.
    keep: why the volume is kept. shared: as for RemovalPlan, if other hosts may use the volume."""

    path: str
    allocation: int = 0
    keep: str | None = None
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CleanPlan(Message):
    """Answer of `virt.migrate_clean` to `test=True`; see RemovalPlan. delete: None if the host has
    no record."""

    delete: tuple[str, ...] | None = None
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CleanupResult(Message):
    """Answer of `virt.migrate_clean`. deleted: paths; retained: path to the reason."""

    deleted: tuple[str, ...] = ()
    retained: dict[str, str] = field(default_factory=dict)
