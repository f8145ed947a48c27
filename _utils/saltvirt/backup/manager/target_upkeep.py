"""Prune and verify the backups at targets.

Each target is asked separately. A target that does not answer does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from saltvirt import settings, units
from saltvirt.backup.model import calls, policy
from saltvirt.backup.model.policy import TargetPolicy
from saltvirt.backup.model.upkeep_answers import GuestPruneResult, PruneResult, VerifyResult
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result, Several, failure
from saltvirt.operations.core.report import Report

_TargetOperation = Callable[[TargetPolicy], Result]


def select_targets(fleet: Fleet, target_name: str | None) -> list[TargetPolicy]:
    """Return the target of that name, or all targets. Raises InvalidInput, NotFound."""
    backup_policy = policy.read(settings.of_master(fleet.opts))
    if target_name is not None or not backup_policy.targets:
        return [backup_policy.target(target_name)]
    return list(backup_policy.targets.values())


def target_host(fleet: Fleet, target: TargetPolicy) -> str:
    """Return the minion that reads a target: its own, or the first connected hypervisor.

    A target without a host is mounted by all hypervisors. Raises NotFound.
    """
    if target.host:
        return target.host
    hosts = fleet.hosts()
    connected = fleet.connected(hosts)
    return next((host for host in hosts if host in connected), hosts[0])


class Prune:
    """Remove the backups that no retention rule of a target retains.

    name: of one guest; None: of all. target_name: at one target; None: at all.
    """

    def __init__(
        self, fleet: Fleet, name: str | None, target_name: str | None, report: Report
    ) -> None:
        self.fleet, self.name, self.target_name, self.report = fleet, name, target_name, report

    def check(self) -> Several:
        """Return which backups would be removed, and why the others are retained."""
        return _each(self.fleet, self.target_name, lambda target: self._prune(target, True))

    def run(self) -> Several:
        """Remove them. Raises InvalidInput, NotFound."""
        return _each(self.fleet, self.target_name, lambda target: self._prune(target, False))

    def _prune(self, target: TargetPolicy, test: bool) -> Result:
        host = target_host(self.fleet, target)
        request = calls.PruneRequest(
            target.folder, target.retention, self.name, test, mounted=target.mounted
        )
        pruned = calls.PRUNE.ask(self.fleet, host, request)
        if self.name and not pruned.guests:
            return Result(target.name, f"{target.name} has no backup of {self.name}")
        guests = _by_label(pruned.guests)
        removed = {
            label: [entry.backup_id for entry in guest.backups if not entry.retained]
            for label, guest in guests.items()
        }
        changes: dict[str, Any] = {
            label: {"removed": some} for label, some in removed.items() if some
        }
        trouble = {label: entry.error for label, entry in guests.items() if entry.error}
        details: dict[str, Any] = {
            "host": host,
            "backups": {
                label: {entry.backup_id: entry.reason for entry in guest.backups if entry.retained}
                for label, guest in guests.items()
            },
            "table": _retention_table(guests),
        }
        if trouble:
            details["trouble"] = trouble
        comment = _prune_comment(target, pruned, trouble, test)
        if test:
            nothing = not changes and not trouble
            return Checked(target.name, comment, changes, details, not trouble, nothing=nothing)
        self.report.done(comment, target=target.name)
        return Result(target.name, comment, changes, details, not trouble)


class Verify:
    """Read backups back and compare them with their checksums.

    backup: of each guest ``all``, ``latest``, or a name or number. days: only backups that have not
    been verified for this number of days. limit: the maximum number for each target; the backups
    whose last verification is the oldest come first.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str | None,
        target_name: str | None,
        report: Report,
        backup: str = "all",
        days: float | None = None,
        limit: int | None = None,
    ) -> None:
        self.fleet, self.name, self.target_name, self.report = fleet, name, target_name, report
        self.backup, self.days, self.limit = backup, days, limit

    def check(self) -> Several:
        """Return which machines would verify backups."""

        def preview(target: TargetPolicy) -> Result:
            host = target_host(self.fleet, target)
            scope = f"of {self.name}" if self.name else "of all guests"
            comment = f"{host} would verify the backups {scope} at {target.name}: {self.backup}"
            return Checked(target.name, comment, details={"host": host})

        return _each(self.fleet, self.target_name, preview)

    def run(self) -> Several:
        """Verify the backups. Raises InvalidInput, NotFound."""
        return _each(self.fleet, self.target_name, self._verify)

    def _verify(self, target: TargetPolicy) -> Result:
        host = target_host(self.fleet, target)
        request = calls.VerifyRequest(
            target.folder, self.name, self.backup, self.days, self.limit, mounted=target.mounted
        )
        self.report.step("begin", f"{target.name}: {host} verifies its backups")
        watch = ("salt/virt/backup/", self._watch)
        verified = calls.VERIFY.ask(self.fleet, host, request, watch=watch)
        results, count = verified.backups, len(verified.backups) + verified.omitted
        if self.name and not count and self.days is None:
            return Result(target.name, f"{target.name} has no backup of {self.name}")
        bad = [result for result in results if result.error or result.problem]
        comment = f"verified {units.pluralize(count, 'backup')} at {target.name}: "
        comment += f"{len(bad)} not good" if bad else "all good" if count else "none was due"
        details = {
            "host": host,
            "backups": [result.to_answer() for result in results],
            "table": [["guest", "backup", "result"], *(_row(result) for result in results)],
        }
        self.report.done(comment, target=target.name)
        return Result(target.name, comment, {}, details, not bad)

    def _watch(self, tag: str, event: dict[str, Any]) -> None:
        if tag.endswith("/verify") and event.get("percent") is not None:
            about = f"{event.get('name')}: {event.get('backup')}"
            self.report.progress(event["percent"], f"{about}: {event['percent']} % verified")


def _each(fleet: Fleet, target_name: str | None, operate: _TargetOperation) -> Several:
    """Return the result for each target. If there is only one target, its failure is raised."""
    targets = select_targets(fleet, target_name)
    if len(targets) == 1:
        return Several((operate(targets[0]),))
    parts = []
    for target in targets:
        try:
            parts.append(operate(target))
        except Exception as exc:
            message = failure(exc, f"the request to the target {target.name}")
            parts.append(Result(target.name, message, complete=False))
    return Several(tuple(parts))


def _by_label(guests: Iterable[GuestPruneResult]) -> dict[str, GuestPruneResult]:
    """Return the guests by name. The UUID distinguishes guests of one name or without a name."""
    names = Counter(guest.guest for guest in guests)

    def label(guest: GuestPruneResult) -> str:
        if guest.guest is None:
            return guest.uuid
        return guest.guest if names[guest.guest] == 1 else f"{guest.guest} {guest.uuid}"

    return {label(guest): guest for guest in guests}


def _prune_comment(
    target: TargetPolicy, pruned: PruneResult, trouble: dict[str, str], test: bool
) -> str:
    removed = sum(not backup.retained for guest in pruned.guests for backup in guest.backups)
    stay = sum(backup.retained for guest in pruned.guests for backup in guest.backups)
    stay += sum(guest.omitted for guest in pruned.guests)
    verb, retained = ("would remove", "retain") if test else ("removed", "retained")
    count = units.pluralize(removed, "backup")
    text = f"{verb} {count} from {target.name} and {retained} {stay}"
    if not target.retention.is_set:
        text += ": no retention is configured (virt:backup:retention)"
    for guest, reason in trouble.items():
        text += f"; {guest}: {reason}"
    return text


def _retention_table(guests: dict[str, GuestPruneResult]) -> list[list[str]]:
    rows = [["guest", "backup", "retained", "reason"]]
    for label, guest in guests.items():
        for backup in guest.backups:
            rows.append(
                [label, backup.backup_id, "yes" if backup.retained else "no", backup.reason]
            )
    return rows


def _row(result: VerifyResult) -> list[str]:
    return [result.guest or result.uuid, result.backup_id, result.error or result.problem or "good"]
