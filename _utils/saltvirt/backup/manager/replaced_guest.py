"""A backup has taken the place of a guest: that is confirmed, or undone."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names
from saltvirt.answers.removal import RemovalPlan
from saltvirt.backup.model.answers import UndoResult
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, ha_provider
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.guest import lifecycle, purge
from saltvirt.operations.journal import lock


class CommitRestore:
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
            host = self._locate(name)
            plan = purge.plan(self.fleet, host, name, "virt.backup_confirm")
            reasons.raise_first()
            comment = f"of what {name} had on {host} would be deleted: {_path_list(plan.delete)}"
            details = {"host": host, "keep": plan.keep}
            return Checked(
                name, comment + _retained_note(plan.keep), {"deleted": plan.delete}, details
            )
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_confirm"):
            host = self._locate(name)
            plan = purge.plan(self.fleet, host, name, "virt.backup_confirm")
            arguments = {"vm_": name, "unused": plan.unused}
            answer = self.fleet.call(host, "virt.backup_confirm", arguments, long=True)
            removal = RemovalPlan.from_answer(answer, host)
        comment = f"of what {name} had on {host} was deleted: {_path_list(removal.delete)}"
        comment += _retained_note(removal.keep)
        self.report.done(comment, host=host)
        details = {"host": host, "keep": removal.keep}
        return Result(name, comment, {"deleted": [*removal.delete]}, details)

    def _locate(self, name: str) -> str:
        if not self.host:
            return find.locate(self.fleet, name)[0]
        self.fleet.hosts(self.host)
        return self.host


class RollbackRestore:
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
                ha_provider.refuse_managed(self.fleet.opts, name)
            host = self._locate(name)
            self.fleet.call(host, "virt.backup_undo", {**self._arguments(name), "test": True})
            reasons.raise_first()
            comment = f"{name} on {host} would be as it was; what the backup made would be deleted"
            return Checked(name, comment, {"undone": True}, {"host": host})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_undo"):
            ha_provider.refuse_managed(self.fleet.opts, name)
            host = self._locate(name)
            answer = self.fleet.call(host, "virt.backup_undo", self._arguments(name), long=True)
            rollback = UndoResult.from_answer(answer, host)
        comment = f"{name} on {host} is as it was, and off"
        comment += "".join(f"; {item}: run it again when that has ended" for item in rollback.left)
        comment += "".join(
            f"; {item}, a disk that it was given since, stays, and is attached to it no more"
            for item in rollback.detached
        )
        self.report.done(comment, host=host)
        details: dict[str, Any] = {"host": host}
        if rollback.detached:
            details["detached"] = list(rollback.detached)
        return Result(name, comment, {"undone": True}, details, not rollback.left)

    def _arguments(self, name: str) -> dict[str, Any]:
        return {"name": name, "stop": self.stop}

    def _locate(self, name: str) -> str:
        hosts = find.locations(self.fleet).guests.get(name)
        if hosts:
            return lifecycle.host_for_write(self.fleet, name, self.host)
        if not self.host:
            raise errors.NotFound(
                f"{name} is on no hypervisor that answered: host=HOST says which one had it"
            )
        self.fleet.hosts(self.host)
        return self.host


def _path_list(paths: Any) -> str:
    return ", ".join(paths) or "nothing"


def _retained_note(keep: dict[str, str]) -> str:
    return "".join(f"; {path} stays: {reason}" for path, reason in keep.items())
