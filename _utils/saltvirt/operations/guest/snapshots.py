"""Take, revert to and delete snapshots of a guest."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from saltvirt import errors, names, units
from saltvirt.answers.calls import Call
from saltvirt.answers.snapshots import SnapshotChange, SnapshotError, SnapshotInfo, SnapshotTaken
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, ha_provider, shared_storage_check
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.guest import lifecycle
from saltvirt.operations.journal import lock
from saltvirt.snapshot.calls import (
    DELETE_SNAPSHOTS,
    LIST_SNAPSHOTS,
    REVERT_SNAPSHOT,
    TAKE_SNAPSHOT,
    DeleteSnapshotsRequest,
    RevertRequest,
    SnapshotsRequest,
    TakeSnapshotRequest,
)

# name of a snapshot to its data
SnapshotsByName = dict[str, SnapshotInfo]
Change = TypeVar("Change", bound=SnapshotChange)
ChangeRequest = TypeVar("ChangeRequest", RevertRequest, DeleteSnapshotsRequest)


def writable_snapshots(
    fleet: Fleet, name: str, only: str | None = None
) -> tuple[str, SnapshotsByName]:
    """Return (host, snapshots) of a guest whose snapshots are to be taken, reverted to or deleted.
    only: as for lifecycle.plan.

    Raises as lifecycle.host_for_write does; OperationFailed if the host cannot list them.
    """
    host = lifecycle.host_for_write(fleet, name, only)
    return host, _read_snapshots(fleet, host, name)


def _read_snapshots(fleet: Fleet, host: str, name: str) -> SnapshotsByName:
    """Return the guest's snapshots from its host. Raises OperationFailed."""
    listed = LIST_SNAPSHOTS.ask(fleet, host, SnapshotsRequest(name)).get(name)
    if listed is None or isinstance(listed, SnapshotError):
        reason = listed.error if listed else f"its answer does not include {name}"
        raise errors.OperationFailed(f"the snapshots of {name} on {host} are unknown: {reason}")
    snapshots = listed if isinstance(listed, list) else []
    return {snapshot.name: snapshot for snapshot in snapshots}


# libvirt's states of the guest of a snapshot that differ from those of guests; a snapshot of the
# disks alone is a "disk-snapshot" if the guest was not off
_STATES = {"shutoff": "off", "disk-snapshot": "running"}


def listing(fleet: Fleet, name: str) -> Result:
    """Return the snapshots of a guest, the oldest first.

    Raises NotFound, OperationFailed.
    """
    host, _ = find.locate(fleet, name)
    snapshots = _read_snapshots(fleet, host, name)
    if not snapshots:
        comment = f"{name} on {host} has no snapshots"
        return Result(name, comment, {}, {"host": host, "snapshots": []})
    header = ["snapshot", "taken", "kind", "guest was", "based on", "current"]
    rows: list[list[str | None]] = [[*header]]
    for snapshot in snapshots.values():
        kind = "external" if snapshot.external else "internal"
        current = "yes" if snapshot.current else ""
        state = _STATES.get(snapshot.state or "", snapshot.state)
        rows.append([snapshot.name, snapshot.created, kind, state, snapshot.parent, current])
    comment = f"{name} on {host} has {units.pluralize(len(snapshots), 'snapshot')}"
    data = [snapshot.to_answer() for snapshot in snapshots.values()]
    return Result(name, comment, {}, {"host": host, "table": rows, "snapshots": data})


def _and_notes(comment: str, notes: Iterable[str]) -> str:
    return "; ".join([comment, *notes])


def plan(
    fleet: Fleet, host: str, call: Call[ChangeRequest, Change], request: ChangeRequest
) -> tuple[Change, list[str]]:
    """Return (what the host would do, the files that no other host uses). Changes nothing.

    Raises Refused unless all other hosts answer that they do not use the files that would be
    merged, reset or deleted.
    """
    planned_change = call.ask(fleet, host, replace(request, test=True), long=False)
    file_locations = (
        {**planned_change.guest_disks, **planned_change.shared} if planned_change.shared else {}
    )
    _, reasons = shared_storage_check.unused_elsewhere(fleet, host, file_locations)
    for path in sorted(set(planned_change.shared) & set(reasons)):
        raise errors.Refused(
            f"{path} on {host} would be lost, but other hosts may need it: {reasons[path]}"
        )
    return planned_change, sorted(planned_change.shared)


def run(
    fleet: Fleet, host: str, call: Call[ChangeRequest, Change], request: ChangeRequest
) -> Change:
    """Perform the change after the other hosts were asked, and return the host's answer."""
    _, unused = plan(fleet, host, call, request)
    return call.ask(fleet, host, replace(request, unused=tuple(unused)))


class _SnapshotOperation(abc.ABC):
    """The common part of operations on a guest's snapshots.

    host: the guest's host, if the operator knows that it is on no other.
    """

    verb = "virt.snapshot"

    def __init__(self, fleet: Fleet, name: str, host: str | None = None) -> None:
        self.fleet, self.name, self.host = fleet, str(name), host

    def check(self) -> Checked:
        """Return which snapshots would change."""
        reasons = Reasons()
        with reasons, self._locked_snapshots() as (host, snapshots):
            return self._planned(host, snapshots)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Perform the operation. Raises NotFound, InvalidInput, AlreadyExists, Refused,
        OperationFailed."""
        with self._locked_snapshots() as (host, snapshots):
            return self._done(host, snapshots)

    @contextlib.contextmanager
    def _locked_snapshots(self) -> Iterator[tuple[str, SnapshotsByName]]:
        """Hold the guest's lock, and yield (its host, its snapshots)."""
        with lock.guest(self.fleet.opts, names.existing_guest(self.name), self.verb):
            yield writable_snapshots(self.fleet, self.name, self.host)

    @abc.abstractmethod
    def _planned(self, host: str, snapshots: SnapshotsByName) -> Checked:
        """Return what the operation would do."""

    @abc.abstractmethod
    def _done(self, host: str, snapshots: SnapshotsByName) -> Result:
        """Perform the operation."""


class TakeSnapshot(_SnapshotOperation):
    """Take a snapshot. snapshot: its name; None: the guest's name and the time. disk_only: True:
    external, False: internal, None: depending on the guest. quiesce: the guest agent freezes the
    file systems first."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        snapshot: str | None = None,
        host: str | None = None,
        disk_only: bool | None = None,
        quiesce: bool = False,
    ) -> None:
        super().__init__(fleet, name, host)
        self.snapshot, self.disk_only, self.quiesce = snapshot, disk_only, quiesce

    def _ask(self, host: str, *, test: bool) -> SnapshotTaken:
        request = TakeSnapshotRequest(self.name, self.snapshot, self.disk_only, self.quiesce, test)
        return TAKE_SNAPSHOT.ask(self.fleet, host, request, long=not test)

    def _notes(self, taken: SnapshotTaken) -> Iterator[str]:
        yield f"while {self.name} has snapshots it cannot migrate live"
        yield from taken.notes

    def _free(self, host: str, snapshots: SnapshotsByName) -> None:
        if self.snapshot and str(self.snapshot) in snapshots:
            raise errors.AlreadyExists(
                f"{self.name} on {host} has a snapshot {self.snapshot} already"
            )

    def _planned(self, host: str, snapshots: SnapshotsByName) -> Checked:
        self._free(host, snapshots)
        notes = self._notes(self._ask(host, test=True))
        comment = _and_notes(f"a snapshot of {self.name} on {host} would be taken", notes)
        return Checked(self.name, comment, {"snapshot": self.snapshot}, {"host": host})

    def _done(self, host: str, snapshots: SnapshotsByName) -> Result:
        self._free(host, snapshots)
        taken = self._ask(host, test=False)
        comment = f"snapshot {taken.name} of {self.name} on {host} was taken"
        comment = _and_notes(comment, self._notes(taken))
        return Result(self.name, comment, {"snapshot": taken.name}, {"host": host})


class RevertToSnapshot(_SnapshotOperation):
    """Revert the guest to a snapshot. snapshot: its name; None: the one before the current.
    cleanup: also delete all snapshots that are newer or based on it."""

    verb = "virt.revert"

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        snapshot: str | None = None,
        cleanup: bool = False,
        host: str | None = None,
    ) -> None:
        super().__init__(fleet, name, host)
        self.snapshot, self.cleanup = snapshot, bool(cleanup)

    @contextlib.contextmanager
    def _locked_snapshots(self) -> Iterator[tuple[str, SnapshotsByName]]:
        """Refuse a managed guest: it is off during or after the revert, and its provider would
        start it meanwhile."""
        ha_provider.refuse_managed(self.fleet.opts, names.existing_guest(self.name))
        with super()._locked_snapshots() as location:
            yield location

    def _request(self, host: str, snapshots: SnapshotsByName) -> RevertRequest:
        """Return the request to the host."""
        parents = [snapshot.parent for snapshot in snapshots.values() if snapshot.current]
        snapshot_name = self.snapshot or next(iter(parents), None)
        if snapshot_name not in snapshots:
            about = (
                f"snapshot {snapshot_name}" if snapshot_name else "snapshot before the current one"
            )
            available = ", ".join(snapshots) or "none"
            raise errors.NotFound(f"{self.name} on {host} has no {about}; it has: {available}")
        return RevertRequest(self.name, str(snapshot_name), self.cleanup)

    def _planned(self, host: str, snapshots: SnapshotsByName) -> Checked:
        request = self._request(host, snapshots)
        planned_change, _ = plan(self.fleet, host, REVERT_SNAPSHOT, request)
        comment = f"{self.name} on {host} would be reverted to {request.vm_snapshot}"
        comment = _and_notes(comment, planned_change.notes)
        return Checked(self.name, comment, {"reverted": request.vm_snapshot}, {"host": host})

    def _done(self, host: str, snapshots: SnapshotsByName) -> Result:
        request = self._request(host, snapshots)
        change = run(self.fleet, host, REVERT_SNAPSHOT, request)
        comment = f"{self.name} on {host} was reverted to {request.vm_snapshot}"
        comment = _and_notes(comment, change.notes)
        return Result(self.name, comment, {"reverted": change.to_answer()}, {"host": host})


class DeleteSnapshots(_SnapshotOperation):
    """Delete snapshots. snapshot_names: None: all. children: also those based on them."""

    verb = "virt.delete_snapshots"

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        snapshot_names: list[str] | None,
        children: bool = False,
        host: str | None = None,
    ) -> None:
        super().__init__(fleet, name, host)
        self.snapshot_names, self.children = snapshot_names, bool(children)

    def _request(self, snapshots: SnapshotsByName) -> DeleteSnapshotsRequest:
        snapshot_names = snapshots if self.snapshot_names is None else self.snapshot_names
        return DeleteSnapshotsRequest(self.name, tuple(snapshot_names), self.children)

    def _nothing(self, host: str) -> str:
        return f"{self.name} on {host} has no snapshots: nothing to delete"

    def _planned(self, host: str, snapshots: SnapshotsByName) -> Checked:
        if self.snapshot_names is None and not snapshots:
            return Checked(self.name, self._nothing(host), {}, {"host": host}, nothing=True)
        planned_change, _ = plan(self.fleet, host, DELETE_SNAPSHOTS, self._request(snapshots))
        deleted = sorted(planned_change.deleted)
        comment = f"{', '.join(deleted)} of {self.name} on {host} would be deleted"
        return Checked(self.name, comment, {"deleted": deleted}, {"host": host})

    def _done(self, host: str, snapshots: SnapshotsByName) -> Result:
        if self.snapshot_names is None and not snapshots:
            return Result(self.name, self._nothing(host), {}, {"host": host})
        change = run(self.fleet, host, DELETE_SNAPSHOTS, self._request(snapshots))
        deleted = sorted(change.deleted)
        comment = f"{', '.join(deleted)} of {self.name} on {host} deleted"
        return Result(self.name, comment, {"deleted": deleted}, {"host": host})
