"""Commit an in-place restore, or roll it back to the guest that the backup replaced."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, names
from saltvirt.backup.model import calls
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, ha_provider
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.guest import lifecycle, purge
from saltvirt.operations.journal import lock


class CommitRestore:
    """Delete what the guest had before an in-place restore.

    host: the host with the disks to delete, if the guest has moved to another host.
    """

    def __init__(self, fleet: Fleet, name: str, report: Report, host: str | None = None) -> None:
        self.fleet, self.name, self.report, self.host = fleet, str(name), report, host

    def check(self) -> Checked:
        """Return what would be deleted, after asking the other hosts which disks they use."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            host = self._locate(name)
            plan = purge.plan(self.fleet, host, name, calls.PLAN_COMMIT)
            reasons.raise_first()
            comment = f"would delete the previous disks of {name} on {host}: "
            comment += _path_list(plan.delete)
            details = {"host": host, "keep": plan.keep}
            return Checked(
                name, comment + _retained_note(plan.keep), {"deleted": plan.delete}, details
            )
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Delete the previous disks. Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_confirm"):
            host = self._locate(name)
            plan = purge.plan(self.fleet, host, name, calls.PLAN_COMMIT)
            request = calls.ConfirmRequest(name, tuple(plan.unused))
            removal = calls.CONFIRM_RESTORE.ask(self.fleet, host, request)
        comment = f"deleted the previous disks of {name} on {host}: {_path_list(removal.delete)}"
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
    """Return a guest to its state before an in-place restore.

    stop: power the guest off if it runs. host: the host with the previous state, if no host has the
    guest.
    """

    def __init__(
        self, fleet: Fleet, name: str, report: Report, stop: bool = False, host: str | None = None
    ) -> None:
        self.fleet, self.name, self.report = fleet, str(name), report
        self.stop, self.host = stop, host

    def check(self) -> Checked:
        """Return the host on which the guest would be rolled back."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            with reasons:
                ha_provider.refuse_managed(self.fleet.opts, name)
            host = self._locate(name)
            calls.UNDO_RESTORE.ask(self.fleet, host, calls.UndoRequest(name, self.stop, True))
            reasons.raise_first()
            comment = f"would roll back {name} on {host} and delete the disks of the restore"
            return Checked(name, comment, {"undone": True}, {"host": host})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Roll the guest back. Raises NotFound, Refused, OperationFailed."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.backup_undo"):
            ha_provider.refuse_managed(self.fleet.opts, name)
            host = self._locate(name)
            request = calls.UndoRequest(name, self.stop)
            rollback = calls.UNDO_RESTORE.ask(self.fleet, host, request)
        comment = f"rolled back {name} on {host}; the guest is off"
        comment += "".join(
            f"; {item}: run virt.backup_undo again when that is resolved"
            for item in rollback.leftovers
        )
        comment += "".join(
            f"; detached {item}, which was attached after the restore, and retained it"
            for item in rollback.detached
        )
        self.report.done(comment, host=host)
        details: dict[str, Any] = {"host": host}
        if rollback.detached:
            details["detached"] = list(rollback.detached)
        return Result(name, comment, {"undone": True}, details, not rollback.leftovers)

    def _locate(self, name: str) -> str:
        locations = find.locations(self.fleet)
        if name in locations.guests:
            return lifecycle.host_for_write(self.fleet, name, self.host)
        if not self.host and locations.last_seen(name):
            locations.host_of(name)  # raises the error
        if not self.host:
            raise errors.NotFound(
                f"no hypervisor that answered has {name}: name the host that had it with host=HOST"
            )
        self.fleet.hosts(self.host)
        return self.host


def _path_list(paths: Any) -> str:
    return ", ".join(paths) or "nothing"


def _retained_note(keep: dict[str, str]) -> str:
    return "".join(f"; retained {path}: {reason}" for path, reason in keep.items())
