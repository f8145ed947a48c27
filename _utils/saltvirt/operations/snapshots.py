"""Snapshots of a guest, wherever it runs."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from saltvirt import errors, names
from saltvirt.answers.snapshots import (
    KnownSnapshot,
    SnapshotChange,
    SnapshotReverted,
    SnapshotsDeleted,
    SnapshotTaken,
)
from saltvirt.fleet.client import Fleet
from saltvirt.operations import lifecycle, lock, proof
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
    found = fleet.one(host, "virt.list_snapshots", {"domain": name}, long=False).get(name)
    if found is None or isinstance(found, dict):
        why = found.get("error") if found else f"its answer says nothing of {name}"
        raise errors.OperationFailed(f"which snapshots {name} has on {host} is not known: {why}")
    listed = found if isinstance(found, list) else []  # a text where it has none
    known = [KnownSnapshot.from_answer(one, host) for one in listed]
    return host, {one.name: one for one in known}


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
    """Takes one. snapshot: its name; None: the guest's name and the time."""

    def __init__(
        self, fleet: Fleet, name: str, snapshot: str | None = None, host: str | None = None
    ) -> None:
        super().__init__(fleet, name, host)
        self.snapshot = snapshot

    def _free(self, host: str, known: There) -> None:
        if self.snapshot and str(self.snapshot) in known:
            raise errors.AlreadyExists(
                f"{self.name} on {host} has a snapshot {self.snapshot} already"
            )

    def _planned(self, host: str, known: There) -> Checked:
        self._free(host, known)
        comment = f"a snapshot of {self.name} on {host} would be taken"
        return Checked(self.name, comment, {"snapshot": self.snapshot}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        self._free(host, known)
        asked = {"domain": self.name, "name": self.snapshot}
        found = self.fleet.one(host, "virt.snapshot", asked, long=True)
        taken = SnapshotTaken.from_answer(found, host).name
        comment = f"snapshot {taken} of {self.name} on {host} was taken"
        return Result(self.name, comment, {"snapshot": taken}, {"host": host})


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
        plan(self.fleet, host, SnapshotReverted, asked)
        comment = f"{self.name} on {host} would be put back to {wanted}"
        return Checked(self.name, comment, {"reverted": wanted}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        wanted, asked = self._asked(host, known)
        found = run(self.fleet, host, SnapshotReverted, asked)
        comment = f"{self.name} on {host} was put back to {wanted}"
        return Result(self.name, comment, {"reverted": found.to_answer()}, {"host": host})


class Delete(_OfSnapshots):
    """Deletes snapshots. wanted: their names; None: all. children: also those on top of them."""

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

    def _planned(self, host: str, known: There) -> Checked:
        found, _ = plan(self.fleet, host, SnapshotsDeleted, self._asked(known))
        gone = sorted(found.deleted)
        comment = f"{', '.join(gone)} of {self.name} on {host} would be deleted"
        return Checked(self.name, comment, {"deleted": gone}, {"host": host})

    def _done(self, host: str, known: There) -> Result:
        found = run(self.fleet, host, SnapshotsDeleted, self._asked(known))
        gone = sorted(found.deleted)
        comment = f"{', '.join(gone)} of {self.name} on {host} deleted"
        return Result(self.name, comment, {"deleted": gone}, {"host": host})
