"""All backups of a target, or one guest's: removed by rule, read back."""

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
    PruneDecision,
    PruneResult,
    VerifyReport,
    VerifyResult,
)
from saltvirt.backup.target import prune, receive, verify
from saltvirt.backup.target.target import BackupTarget

# the guest's name, the backup's, bytes done, bytes in all
ProgressCallback = Callable[[str, str, int, int], object]
ALL = "all"
# of more backups an answer tells only what is to be told of
MAX_LISTED = 1500


def select(target: BackupTarget, name: str | None) -> dict[str, Catalog]:
    """UUID to what is there, of all guests, or of those that ``receive.whose`` finds: a guest that
    was removed and made anew has two."""
    uuids = target.guests() if name is None else receive.find_guests(target, name)
    return {uuid: target.catalog(uuid) for uuid in uuids}


def prune_guests(
    target: BackupTarget, rules: Retention, name: str | None, test: bool
) -> PruneResult:
    """Removes what no longer has to stay; test: only tells what. A guest of which it cannot be done
    hinders no other."""
    results = [_prune_guest(target, uuid, rules, test) for uuid in select(target, name)]
    if sum(len(result.backups) for result in results) > MAX_LISTED:
        results = [_removed_only(result) for result in results]
    return PruneResult(tuple(results))


def _removed_only(guest: GuestPruneResult) -> GuestPruneResult:
    """Without those that stay: Salt cuts an answer that is too long."""
    removed = tuple(decision for decision in guest.backups if not decision.stays)
    return replace(guest, backups=removed, untold=len(guest.backups) - len(removed))


def _prune_guest(target: BackupTarget, uuid: str, rules: Retention, test: bool) -> GuestPruneResult:
    guest = GuestPruneResult(uuid, _name(target.catalog(uuid)))
    try:
        verdicts = prune.prune_guest(target, uuid, rules, test)
    except errors.VirtError as exc:
        return replace(guest, trouble=exc.text)
    return replace(
        guest,
        backups=tuple(
            PruneDecision(verdict.backup_id, verdict.retained, verdict.reason)
            for verdict in verdicts
        ),
    )


def verify_all(
    target: BackupTarget,
    name: str | None,
    backup: str,
    days: float | None,
    now: str,
    report: ProgressCallback,
    limit: int | None = None,
) -> VerifyReport:
    """Reads backups back, each guest's from the oldest on.

    backup: of each guest: ALL, or what ``ident.find`` takes. days: only those that were not read
    back in so many days; None: all. now: as a record has it. limit: no more than so many, those
    first that were not read back for the longest time.
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
    bad = tuple(item for item in results if item.trouble or item.wrong)
    return VerifyReport(bad, len(results) - len(bad))


def _select_backups(catalogs: Mapping[str, Catalog], backup: str) -> list[tuple[str, StoredBackup]]:
    """(the guest's UUID, a backup) of those that are meant. Raises as ``ident.find`` does if no
    guest has one."""
    selected: list[tuple[str, StoredBackup]] = []
    missing = None
    for uuid, catalog in catalogs.items():
        if backup == ALL:
            selected += [(uuid, entry) for entry in catalog]
            continue
        try:
            selected.append((uuid, catalog.backups[backup_ids.find(catalog.backups, backup)]))
        except errors.NotFound as exc:  # each guest has numbers of its own
            missing = exc
    if missing and not selected:
        raise missing
    return selected


def _since(backup: StoredBackup) -> tuple[str, str]:
    """When it was last read back, those never read back first."""
    return (backup.verification.when if backup.verification else "", backup.backup_id)


def _is_due(backup: StoredBackup, days: float, now: str) -> bool:
    if backup.verification is None:
        return True
    since = record.moment(now) - record.moment(backup.verification.when)
    # a clock that was put back is no reason not to look
    return not datetime.timedelta() <= since < datetime.timedelta(days=days)


def _verify(
    target: BackupTarget, uuid: str, backup: StoredBackup, now: str, report: ProgressCallback
) -> VerifyResult | None:
    """What was found; None for one that was removed meanwhile."""
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
        return replace(result, trouble=exc.text)
    catalog = target.catalog(uuid)
    if backup.backup_id not in catalog.backups:
        return None
    return replace(result, verified=verification, wrong=catalog.problem(backup.backup_id))


def _name(catalog: Catalog) -> str | None:
    return catalog.records[-1].guest if catalog.records else None
