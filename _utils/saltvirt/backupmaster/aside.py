"""A backup has taken the place of a guest: that is confirmed, or undone."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names
from saltvirt.answers.removal import RemovalPlan
from saltvirt.backups.answers import Undone
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, keepers, lifecycle, lock, purge
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report


class Confirm:
    """What the guest had before goes. host: where that is kept, of a guest that has left it."""

    def __init__(self, fleet: Fleet, name: str, report: Report, host: str | None = None) -> None:
        self.fleet, self.name, self.report, self.host = fleet, str(name), report, host

    def check(self) -> Checked:
        """What would be deleted, the other hosts asked."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            host = self._where(name)
            found = purge.plan(self.fleet, host, name, "virt.backup_confirm")
            reasons.hold()
            comment = f"of what {name} had on {host} would be deleted: {_words(found.delete)}"
            more = {"host": host, "keep": found.keep}
            return Checked(name, comment + _stays(found.keep), {"deleted": found.delete}, more)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_confirm"):
            host = self._where(name)
            found = purge.plan(self.fleet, host, name, "virt.backup_confirm")
            asked = {"vm_": name, "unused": found.unused}
            said = self.fleet.one(host, "virt.backup_confirm", asked, long=True)
            done = RemovalPlan.from_answer(said, host)
        comment = f"of what {name} had on {host} was deleted: {_words(done.delete)}"
        comment += _stays(done.keep)
        self.report.done(comment, host=host)
        more = {"host": host, "keep": done.keep}
        return Result(name, comment, {"deleted": [*done.delete]}, more)

    def _where(self, name: str) -> str:
        if not self.host:
            return find.locate(self.fleet, name)[0]
        self.fleet.hosts(self.host)
        return self.host


class Undo:
    """The guest is as it was. stop: it may be powered off for that. host: where how it was is kept,
    of a guest that is nowhere."""

    def __init__(
        self, fleet: Fleet, name: str, report: Report, stop: bool = False, host: str | None = None
    ) -> None:
        self.fleet, self.name, self.report = fleet, str(name), report
        self.stop, self.host = stop, host

    def check(self) -> Checked:
        """Where it would be brought back."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            with reasons:
                keepers.refuse(self.fleet.opts, name)
            host = self._where(name)
            self.fleet.one(host, "virt.backup_undo", {**self._asked(name), "test": True})
            reasons.hold()
            comment = f"{name} on {host} would be as it was; what the backup made would be deleted"
            return Checked(name, comment, {"undone": True}, {"host": host})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_undo"):
            keepers.refuse(self.fleet.opts, name)
            host = self._where(name)
            said = self.fleet.one(host, "virt.backup_undo", self._asked(name), long=True)
            done = Undone.from_answer(said, host)
        comment = f"{name} on {host} is as it was, and off"
        comment += "".join(f"; {one}: run it again when that has ended" for one in done.left)
        comment += "".join(
            f"; {one}, a disk that it was given since, stays, and is attached to it no more"
            for one in done.detached
        )
        self.report.done(comment, host=host)
        more: dict[str, Any] = {"host": host}
        if done.detached:
            more["detached"] = list(done.detached)
        return Result(name, comment, {"undone": True}, more, not done.left)

    def _asked(self, name: str) -> dict[str, Any]:
        return {"name": name, "stop": self.stop}

    def _where(self, name: str) -> str:
        there = find.locations(self.fleet).guests.get(name)
        if there:
            return lifecycle.writes(self.fleet, name, self.host)
        if not self.host:
            raise errors.NotFound(
                f"{name} is on no hypervisor that answered: host=HOST says which one had it"
            )
        self.fleet.hosts(self.host)
        return self.host


def _words(paths: Any) -> str:
    return ", ".join(paths) or "nothing"


def _stays(keep: dict[str, str]) -> str:
    return "".join(f"; {path} stays: {why}" for path, why in keep.items())
