"""Decide which backups of a guest to keep and which to remove.

Backups are never merged: a backup on which a kept backup depends is kept too, and removed together
with the last of them. This costs at most the increments of one chain, and no good backup is ever
rewritten.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from saltvirt.backup.model import record
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.record import BackupRecord
from saltvirt.schema import Message

# reason for keeping a backup
READ = "the backup is being read"


@dataclass(frozen=True)
class Retention(Message):
    """Numbers of backups to keep: the last ones, and the last one of each hour, day, week (from
    Monday), month and year that has one, in UTC. If all numbers are zero, all backups are kept."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    @property
    def is_set(self) -> bool:
        """Whether any rule is set."""
        return any(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class RetentionVerdict(Message):
    """Whether a backup is retained or removed, in a test would be removed, and the reason."""

    backup_id: str
    retained: bool
    reason: str


def _week(time: datetime.datetime) -> str:
    year, week, _ = time.isocalendar()
    return f"{year}-{week}"


_PERIODS: dict[str, Callable[[datetime.datetime], str]] = {
    "hourly": lambda time: time.strftime("%Y-%m-%dT%H"),
    "daily": lambda time: time.strftime("%Y-%m-%d"),
    "weekly": _week,
    "monthly": lambda time: time.strftime("%Y-%m"),
    "yearly": lambda time: time.strftime("%Y"),
}


def judge(
    catalog: Catalog, retention: Retention, holds: Mapping[str, str] = MappingProxyType({})
) -> list[RetentionVerdict]:
    """Decide on each backup of a guest, the newest first, which is also the order of removal.

    holds: backup to a reason for keeping it regardless of the rules, such as READ. A backup that is
    not good does not count for the rules, but is kept as long as they would keep it if it were
    good, because most of it may be readable. An unreadable backup is kept, with all older ones, on
    which it may depend, and with those that depend on it, which may be good. The newest good backup
    of a disk that later backups skipped is kept.
    """
    retained = _select_by_rules(catalog.good_records, retention)
    # backups that lack a file do not count among those that only a verification found broken
    fit = [item for item in catalog.records if _is_fit(catalog, item)]
    for backup_id, reason in [
        *_select_by_rules(fit, retention).items(),
        *_select_by_rules(catalog.records, retention).items(),
    ]:
        retained.setdefault(
            backup_id, f"{reason}, although it is not good: {catalog.problem(backup_id)}"
        )
    if not retention.is_set:
        retained = dict.fromkeys(catalog.backups, "retention is not set")
    for backup_id, reason in [*_forced_holds(catalog, holds), *_skipped_holds(catalog)]:
        retained.setdefault(backup_id, reason)
    # a backup kept for one disk is kept with the dependencies of its other disks
    todo = list(retained)
    while todo:
        backup_id = todo.pop()
        for below in catalog.dependencies(backup_id) - {*retained}:
            retained[below] = f"{backup_id} depends on it"
            todo.append(below)
    return [
        RetentionVerdict(
            item, item in retained, retained.get(item) or _removal_reason(catalog, item)
        )
        for item in sorted(catalog.backups, reverse=True)
    ]


def _is_fit(catalog: Catalog, backup_record: BackupRecord) -> bool:
    return all(
        catalog.file_problem(backup_record.backup_id, disk.target) is None
        for disk in backup_record.parts
    )


def _select_by_rules(records: list[BackupRecord], retention: Retention) -> dict[str, str]:
    """Map each backup that a rule selects to this rule, the first one if several do. Each rule
    selects the newest backup."""
    newest_first = records[::-1]
    selected = {
        backup_record.backup_id: f"among the last {retention.last}"
        for backup_record in newest_first[: retention.last]
    }
    for rule, period in _PERIODS.items():
        remaining, before = getattr(retention, rule), None
        for backup_record in newest_first:
            current = period(record.moment(backup_record.taken_at))
            # in order of the backups, not of their clocks: one from 2099 ages too
            if remaining and current != before:
                selected.setdefault(
                    backup_record.backup_id, f"among the {getattr(retention, rule)} {rule}"
                )
                remaining, before = remaining - 1, current
    return selected


def _forced_holds(catalog: Catalog, holds: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (backup, reason) of backups that are kept because they are in use or their state is
    unknown."""
    all_, good = list(catalog.backups), catalog.good_ids
    result = [(item, holds[item]) for item in all_ if item in holds]
    unread = [item.backup_id for item in catalog if item.record is None]
    by_hand = "its record cannot be read: inspect the backup, and remove it manually"
    result += [(item, by_hand) for item in unread]
    if unread:
        reason = f"{unread[-1]}, which cannot be read, may depend on it"
        result += [(item, reason) for item in all_[: all_.index(unread[-1])]]
    unsure = {
        item.backup_id: f"it may be good: {item.result_error}"
        for item in catalog
        if item.result_error
    }
    result += unsure.items()
    for item in all_:
        for below in sorted(catalog.dependencies(item) & {*unread, *unsure}):
            result.append((item, f"{below}, on which it depends, may be good"))
    newer = all_[all_.index(good[-1]) + 1 :] if good else all_
    return result + [(item, "no newer backup is good") for item in newer]


def _skipped_holds(catalog: Catalog) -> list[tuple[str, str]]:
    """Return (backup, reason) for the newest good backup of each disk that the newest good backup
    skips.

    This is for disks whose secret libvirt gives to a running guest only, and for firmware variables
    and TPM state.
    """
    good = catalog.good_records
    result = []
    for target in sorted(good[-1].skipped if good else {}):
        disk = record.STATE if target in (record.FIRMWARE, record.TPM) else target
        for backup_record in reversed(catalog.records):
            has = backup_record.disk(disk) and target not in backup_record.skipped
            if has and catalog.disk_problem(backup_record.backup_id, disk) is None:
                reason = f"the newest good backup with {target}, which {good[-1].backup_id} skips"
                result.append((backup_record.backup_id, reason))
                break
    return result


def _removal_reason(catalog: Catalog, backup_id: str) -> str:
    wrong = catalog.problem(backup_id)
    return f"no rule keeps it, and it is not good: {wrong}" if wrong else "no rule keeps it"
