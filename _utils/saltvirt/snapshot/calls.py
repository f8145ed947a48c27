"""The calls about snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.snapshots import (
    SnapshotError,
    SnapshotInfo,
    SnapshotReverted,
    SnapshotsDeleted,
    SnapshotTaken,
)
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class SnapshotsRequest(Message):
    """domain: name of the guest."""

    domain: str


@dataclass(frozen=True)
class TakeSnapshotRequest(Message):
    """Take a snapshot of a guest.

    name: of the snapshot; None: the host chooses it. disk_only: True: external, False: internal,
    None: depending on the guest. quiesce: the guest agent freezes the file systems first. test:
    change nothing.
    """

    domain: str
    name: str | None = None
    disk_only: bool | None = optional(None)
    quiesce: bool = optional(False)
    test: bool = optional(False)


@dataclass(frozen=True)
class RevertRequest(Message):
    """Revert a guest to a snapshot. cleanup: also delete newer snapshots. test: change nothing.
    unused: files on shared storage that no other host uses."""

    name: str
    vm_snapshot: str
    cleanup: bool = False
    test: bool = optional(False)
    unused: tuple[str, ...] | None = optional(None)


@dataclass(frozen=True)
class DeleteSnapshotsRequest(Message):
    """Delete snapshots of a guest. children: also those based on them. test, unused: see
    RevertRequest."""

    name: str
    names: tuple[str, ...]
    children: bool = False
    test: bool = optional(False)
    unused: tuple[str, ...] | None = optional(None)


# guest to its snapshots; a text if it has none
LIST_SNAPSHOTS: Call[SnapshotsRequest, dict[str, list[SnapshotInfo] | SnapshotError | str]] = Call(
    "list_snapshots",
    SnapshotsRequest,
    cast(Any, dict[str, list[SnapshotInfo] | SnapshotError | str]),
    Timeout.SHORT,
)
TAKE_SNAPSHOT = Call("snapshot", TakeSnapshotRequest, SnapshotTaken)
REVERT_SNAPSHOT = Call("revert_snapshot", RevertRequest, SnapshotReverted)
DELETE_SNAPSHOTS = Call("delete_snapshots", DeleteSnapshotsRequest, SnapshotsDeleted)
