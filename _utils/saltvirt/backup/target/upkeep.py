"""Prune or verify all backups of a target, or those of one guest."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace

from saltvirt import errors
from saltvirt.backup.model import backup_ids, record
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.model.retention import Retention
from saltvirt.backup.model.upkeep_answers import (
    GuestPruneResult,
    PruneResult,
    VerifyReport,
    VerifyResult,
)
from saltvirt.backup.target import prune, receive, verify
from saltvirt.backup.target.target import BackupTarget

# (guest, backup, bytes done, total bytes)
ProgressCallback = Callable[[str, str, int, int], object]
ALL = "all"
# with more backups, an answer lists only those that need attention
MAX_LISTED = 1500


def select(target: BackupTarget, name: str | None) -> dict[str, Catalog]:
    """Map UUIDs to catalogs, of all guests or of those with this name; a guest that was created
    again has two UUIDs."""
    uuids = target.guests() if name is None else receive.find_guests(target, name)
    return {uuid: target.catalog(uuid) for uuid in uuids}


def prune_guests(
    target: BackupTarget, rules: Retention, name: str | None, test: bool
) -> PruneResult:
    """Remove the backups that no rule keeps; test: only report them. A failure for one guest does
    not affect others."""
    results = [_prune_guest(target, uuid, rules, test) for uuid in select(target, name)]
    if sum(len(result.backups) for result in results) > MAX_LISTED:
        results = [_removed_only(result) for result in results]
    return PruneResult(tuple(results))


def _removed_only(guest: GuestPruneResult) -> GuestPruneResult:
    """Omit the retained backups, because Salt truncates long answers."""
    removed = tuple(decision for decision in guest.backups if not decision.retained)
    return replace(guest, backups=removed, omitted=len(guest.backups) - len(removed))


def _prune_guest(target: BackupTarget, uuid: str, rules: Retention, test: bool) -> GuestPruneResult:
    guest = GuestPruneResult(uuid, _name(target.catalog(uuid)))
    try:
        return replace(guest, backups=tuple(prune.prune_guest(target, uuid, rules, test)))
    except errors.VirtError as exc:
        return replace(guest, error=exc.text)


def verify_all(
    target: BackupTarget,
    name: str | None,
    backup: str,
    days: float | None,
    now: str,
    report: ProgressCallback,
    limit: int | None = None,
) -> VerifyReport:
    """Verify backups, those of each guest in order of their age, the oldest first.

    backup: of each guest: ALL, or as for ``backup_ids.find``. days: only backups that were not
    verified within this time; None: all. now: as in a record. limit: maximum number of backups, the
    longest unverified first.
    """
    catalogs = {uuid: catalog for uuid, catalog in select(target, name).items() if catalog.last}
    chosen = _select_backups(catalogs, backup)
    selected = [(uuid, item) for uuid, item in chosen if days is None or _is_due(item, days, now)]
    if limit is not None:
        selected = sorted(selected, key=lambda item: _since(item[1]))[:limit]
    checks = (_verify(target, uuid, item, now, report) for uuid, item in selected)
    results = [item for item in checks if item]
    if len(results) <= MAX_LISTED:
        return VerifyReport(tuple(results))
    bad = tuple(item for item in results if item.error or item.problem)
    return VerifyReport(bad, len(results) - len(bad))


def _select_backups(catalogs: Mapping[str, Catalog], backup: str) -> list[tuple[str, StoredBackup]]:
    """Return (UUID, backup) of the selected backups. Raises what ``backup_ids.find`` raises if no
    guest has a matching backup."""
    selected: list[tuple[str, StoredBackup]] = []
    missing = None
    for uuid, catalog in catalogs.items():
        if backup == ALL:
            selected += [(uuid, entry) for entry in catalog]
            continue
        try:
            selected.append((uuid, catalog.backups[backup_ids.find(catalog.backups, backup)]))
        except errors.NotFound as exc:  # backup numbers are per guest
            missing = exc
    if missing and not selected:
        raise missing
    return selected


def _since(backup: StoredBackup) -> tuple[str, str]:
    """Sort key: the time of the last verification; backups that were never verified come first."""
    return (backup.verification.verified_at if backup.verification else "", backup.backup_id)


def _is_due(backup: StoredBackup, days: float, now: str) -> bool:
    if backup.verification is None:
        return True
    since = record.moment(now) - record.moment(backup.verification.verified_at)
    # do not trust a verification from the future: the clock was put back
    return not datetime.timedelta() <= since < datetime.timedelta(days=days)


def _verify(
    target: BackupTarget, uuid: str, backup: StoredBackup, now: str, report: ProgressCallback
) -> VerifyResult | None:
    """Verify a backup and return the result; None if it was removed meanwhile."""
    guest = backup.record.guest if backup.record else None
    result = VerifyResult(uuid, backup.backup_id, guest)

    def on_progress(done: int, total: int) -> None:
        report(guest or uuid, backup.backup_id, done, total)

    try:
        verification = verify.backup(target, uuid, backup.backup_id, now, on_progress)
    except errors.Unsupported:
        raise
    except errors.VirtError as exc:
        if not target.folder.exists(uuid, backup.backup_id):
            return None
        return replace(result, error=exc.text)
    catalog = target.catalog(uuid)
    if backup.backup_id not in catalog.backups:
        return None
    return replace(result, verification=verification, problem=catalog.problem(backup.backup_id))


def _name(catalog: Catalog) -> str | None:
    return catalog.records[-1].guest if catalog.records else None
