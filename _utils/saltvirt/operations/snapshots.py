"""Snapshots of a guest, wherever it runs."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from saltvirt import errors, names, units
from saltvirt.answers.snapshots import (
    KnownSnapshot,
    SnapshotChange,
    SnapshotReverted,
    SnapshotsDeleted,
    SnapshotTaken,
)
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, keepers, lifecycle, lock, proof
from saltvirt.operations.operation import Checked, Reasons, Result

# name of a snapshot to what is known of it
There = dict[str, KnownSnapshot]
Change = TypeVar("Change", bound=SnapshotChange)


def there(fleet: Fleet, name: str, only: str | None = None) -> tuple[str, There]:
    """(host, name to what is known of it) of a guest's snapshots, of which some are to be taken,
    put back or deleted. only: as for lifecycle.plan.

    Raises what lifecycle.writes does, OperationFailed where the host cannot tell.
    """
    host = lifecycle.writes(fleet, name, only)
    return host, _known(fleet, host, name)


def _known(fleet: Fleet, host: str, name: str) -> There:
    """What the host knows of the guest's snapshots. Raises OperationFailed."""
    found = fleet.one(host, "virt.list_snapshots", {"domain": name}, long=False).get(name)
    if found is None or isinstance(found, dict):
        why = found.get("error") if found else f"its answer says nothing of {name}"
        raise errors.OperationFailed(f"which snapshots {name} has on {host} is not known: {why}")
    listed = found if isinstance(found, list) else []  # a text where it has none
    known = [KnownSnapshot.from_answer(one, host) for one in listed]
    return {one.name: one for one in known}


def listing(fleet: Fleet, name: str) -> Result:
    """The snapshots of a guest, wherever it is, the oldest first.

    Raises NotFound, OperationFailed.
    """
    host, _ = find.locate(fleet, name)
    known = _known(fleet, host, name)
    if not known:
        comment = f"{name} on {host} has no snapshots"
        return Result(name, comment, {}, {"host": host, "snapshots": []})
    header = ["snapshot", "taken", "kind", "guest was", "on top of", "current"]
    rows: list[list[str | None]] = [[*header]]
    for one in known.values():
        kind = "external" if one.external else "internal"
        current = "yes" if one.current else ""
        rows.append([one.name, one.created, kind, one.state, one.parent, current])
    comment = f"{name} on {host} has {units.counted(len(known), 'snapshot')}"
    data = [one.to_answer() for one in known.values()]
    return Result(name, comment, {}, {"host": host, "table": rows, "snapshots": data})


def _and_notes(comment: str, notes: Iterable[str]) -> str:
    return "; ".join([comment, *notes])


def plan(
    fleet: Fleet, host: str, change: type[Change], arguments: dict[str, Any]
) -> tuple[Change, list[str]]:
    """(what the host would do, the files that no other host uses). Changes nothing.

    Raises Refused when one of the files that are merged, begin anew or go may be needed on another
    host: where all have not said that it is not.
    """
    data = fleet.one(host, change.FUNCTION, {**arguments, "test": True}, long=False)
    found = change.from_answer(data, host)
    places = {**found.own, **found.shared} if found.shared else {}
    _, why = proof.elsewhere(fleet, host, places)
    for path in sorted(set(found.shared) & set(why)):
        raise errors.Refused(
            f"{path} on {host} would be lost, and other hosts may need it: {why[path]}"
        )
    return found, sorted(found.shared)


def run(fleet: Fleet, host: str, change: type[Change], arguments: dict[str, Any]) -> Change:
    """Does it after the other hosts were asked; what the host answered."""
    _, unused = plan(fleet, host, change, arguments)
    data = fleet.one(host, change.FUNCTION, {**arguments, "unused": unused}, long=True)
    return change.from_answer(data, host)


class _OfSnapshots(abc.ABC):
    """What all operations on a guest's snapshots have in common.

    host: where the guest is and nowhere else, though not every host answers.
    """

    verb = "virt.snapshot"

    def __init__(self, fleet: Fleet, name: str, host: str | None = None) -> None:
        self.fleet, self.name, self.host = fleet, str(name), host

    def check(self) -> Checked:
        """What would become of which snapshots."""
        reasons = Reasons()
        with reasons, self._there() as (host, known):
            return self._planned(host, known)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, AlreadyExists, Refused, OperationFailed."""
        with self._there() as (host, known):
            return self._done(host, known)

    @contextlib.contextmanager
    def _there(self) -> Iterator[tuple[str, There]]:
        """Holds the guest's lock: (its host, its snapshots)."""
        with lock.guest(self.fleet.opts, names.guest(self.name), self.verb):
            yield there(self.fleet, self.name, self.host)

    @abc.abstractmethod
    def _planned(self, host: str, known: There) -> Checked:
        """What it would do, in words."""

    @abc.abstractmethod
    def _done(self, host: str, known: There) -> Result:
        """Does it."""


class Snapshot(_OfSnapshots):
    """Takes one. snapshot: its name; None: the guest's name and the time. disk_only: True for an
    external one, False for an internal one, None for what suits the guest. quiesce: the guest's
    agent settles its file systems first."""

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
        asked: dict[str, Any] = {"domain": self.name, "name": self.snapshot}
        if self.disk_only is not None:
            asked["disk_only"] = self.disk_only
        if self.quiesce:
            asked["quiesce"] = True
        if test:
            asked["test"] = True
        found = self.fleet.one(host, "virt.snapshot", asked, long=not test)
        return SnapshotTaken.from_answer(found, host)

    def _notes(self, taken: SnapshotTaken) -> Iterator[str]:
        yield f"while {self.name} has snapshots it cannot migrate live"
        yield from taken.notes

    def _free(self, host: str, known: There) -> None:
        if self.snapshot and str(self.snapshot) in known:
            raise errors.AlreadyExists(
                f"{self.name} on {host} has a snapshot {self.snapshot} already"
            )

    def _planned(self, host: str, known: There) -> Checked:
        self._free(host, known)
        notes = self._notes(self._ask(host, test=True))
        comment = _and_notes(f"a snapshot of {self.name} on {host} would be taken", notes)
        return Checked(self.name, comment, {"snapshot": self.snapshot}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        self._free(host, known)
        taken = self._ask(host, test=False)
        comment = f"snapshot {taken.name} of {self.name} on {host} was taken"
        comment = _and_notes(comment, self._notes(taken))
        return Result(self.name, comment, {"snapshot": taken.name}, {"host": host})


class Revert(_OfSnapshots):
    """Puts the guest back to one. snapshot: its name; None: the one before the current. cleanup:
    also deletes all that are newer than it, or on top of it."""

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
    def _there(self) -> Iterator[tuple[str, There]]:
        """Refuses a guest that is kept: it is off in between, or afterwards, and who keeps it would
        start it meanwhile, here or elsewhere."""
        keepers.refuse(self.fleet.opts, names.guest(self.name))
        with super()._there() as found:
            yield found

    def _asked(self, host: str, known: There) -> tuple[str, dict[str, Any]]:
        """(the snapshot, the arguments of the host's function)."""
        parents = [one.parent for one in known.values() if one.current]
        wanted = self.snapshot or next(iter(parents), None)
        if wanted not in known:
            about = f"snapshot {wanted}" if wanted else "snapshot before the current one"
            has = ", ".join(known) or "none"
            raise errors.NotFound(f"{self.name} on {host} has no {about}; it has: {has}")
        return wanted, {"name": self.name, "vm_snapshot": wanted, "cleanup": self.cleanup}

    def _planned(self, host: str, known: There) -> Checked:
        wanted, asked = self._asked(host, known)
        found, _ = plan(self.fleet, host, SnapshotReverted, asked)
        comment = f"{self.name} on {host} would be put back to {wanted}"
        comment = _and_notes(comment, found.notes)
        return Checked(self.name, comment, {"reverted": wanted}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        wanted, asked = self._asked(host, known)
        found = run(self.fleet, host, SnapshotReverted, asked)
        comment = _and_notes(f"{self.name} on {host} was put back to {wanted}", found.notes)
        return Result(self.name, comment, {"reverted": found.to_answer()}, {"host": host})


class Delete(_OfSnapshots):
    """Deletes snapshots. wanted: their names; None: all. children: also those on top of them."""

    verb = "virt.delete_snapshots"

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        wanted: list[str] | None,
        children: bool = False,
        host: str | None = None,
    ) -> None:
        super().__init__(fleet, name, host)
        self.wanted, self.children = wanted, bool(children)

    def _asked(self, known: There) -> dict[str, Any]:
        wanted = list(known) if self.wanted is None else self.wanted
        return {"name": self.name, "names": wanted, "children": self.children}

    def _nothing(self, host: str) -> str:
        return f"{self.name} on {host} has no snapshots: nothing to delete"

    def _planned(self, host: str, known: There) -> Checked:
        if self.wanted is None and not known:
            return Checked(self.name, self._nothing(host), {}, {"host": host}, nothing=True)
        found, _ = plan(self.fleet, host, SnapshotsDeleted, self._asked(known))
        gone = sorted(found.deleted)
        comment = f"{', '.join(gone)} of {self.name} on {host} would be deleted"
        return Checked(self.name, comment, {"deleted": gone}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        if self.wanted is None and not known:
            return Result(self.name, self._nothing(host), {}, {"host": host})
        found = run(self.fleet, host, SnapshotsDeleted, self._asked(known))
        gone = sorted(found.deleted)
        comment = f"{', '.join(gone)} of {self.name} on {host} deleted"
        return Result(self.name, comment, {"deleted": gone}, {"host": host})
