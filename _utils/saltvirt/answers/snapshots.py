"""Answers about the snapshots of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class SnapshotInfo(Message):
    """The part of a snapshot in the answer of `virt.list_snapshots` that the master uses. parent:
    the snapshot that it is based on. current: the next snapshot will be based on it. created: in
    the host's local time. external: in files of its own. state: of the guest at that time."""

    name: str
    parent: str | None
    current: bool
    created: str | None = None
    external: bool = False
    state: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class SnapshotError(Message):
    """The reason why the snapshots of a guest cannot be listed."""

    error: str


@dataclass(frozen=True)
class SnapshotTaken(Message):
    """Answer of `virt.snapshot`. notes: sentences about particularities of the snapshot, such as
    data that is not saved with it."""

    name: str
    notes: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class SnapshotChange(Message):
    """Answer of a revert or deletion, with `test=True` about what it would do. Then, if needed,
    shared and guest_disks: path to the FileIdentity of files that are merged, created again or
    deleted, by which other hosts are queried about them, and of the guest's other disks, which are
    no other users; the master passes them on unchanged."""

    shared: dict[str, Any] = optional({})
    guest_disks: dict[str, Any] = optional({})


@dataclass(frozen=True, kw_only=True)
class SnapshotReverted(SnapshotChange):
    """Answer of `virt.revert_snapshot`. reverted: name of the snapshot. deleted: names of the
    snapshots that were deleted afterwards, `N/A` if none was to be deleted. notes: sentences about
    what could not be restored."""

    reverted: str
    deleted: str | tuple[str, ...]
    notes: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class SnapshotsDeleted(SnapshotChange):
    """Answer of `virt.delete_snapshots`. deleted: name to its data."""

    deleted: dict[str, Any]
