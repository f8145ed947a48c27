"""What a host answers of a guest's snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class SnapshotInfo(Message):
    """What the master reads of a snapshot in what `virt.list_snapshots` answers. parent: the one
    that it was taken on top of. current: the next one is taken on top of it. created: in the
    host's local time. external: in files of its own. state: the guest's at that time."""

    name: str
    parent: str | None
    current: bool
    created: str | None = None
    external: bool = False
    state: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class SnapshotTaken(Message):
    """What `virt.snapshot` answers. notes: sentences about what is particular about the snapshot,
    such as what is not saved with it."""

    name: str
    notes: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class SnapshotChange(Message):
    """What puts a guest back to a snapshot, or deletes some, with `test=True` what it would do.
    Then, where the change needs it, shared and own: path to the FileIdentity of what is merged,
    begins anew or goes, by which other hosts are asked about it, and of the guest's other disks,
    which are no other user; the master hands them on as they are."""

    FUNCTION: ClassVar[str]

    shared: dict[str, Any] = optional({})
    own: dict[str, Any] = optional({})


@dataclass(frozen=True, kw_only=True)
class SnapshotReverted(SnapshotChange):
    """What `virt.revert_snapshot` answers. reverted: the name of the snapshot. deleted: the names
    of those that went after it, `N/A` where none was to go. notes: sentences about what is not
    as it was at the snapshot."""

    FUNCTION = "virt.revert_snapshot"

    reverted: str
    deleted: str | tuple[str, ...]
    notes: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class SnapshotsDeleted(SnapshotChange):
    """What `virt.delete_snapshots` answers. deleted: name to what was known of it."""

    FUNCTION = "virt.delete_snapshots"

    deleted: dict[str, Any]
