"""What a host answers when something shall be removed there: first what it would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class RemovalPlan(Message):
    """What `virt.purge` and `virt.remove_made` answer to `test=True`. delete: paths; keep: path to
    why it stays. shared: path to the FileIdentity by which other hosts are asked about it;
    the master hands it on as it is; unsure: the guest's own disks that stay."""

    delete: tuple[str, ...] = ()
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = optional({})
    unsure: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class CleanPlan(Message):
    """What `virt.migrate_clean` answers to `test=True` where it has a note; see RemovalPlan."""

    delete: tuple[str, ...] = ()
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CleanupResult(Message):
    """What `virt.migrate_clean` answers. deleted: paths; kept: path to why it stays."""

    deleted: tuple[str, ...] = ()
    kept: dict[str, str] = field(default_factory=dict)
