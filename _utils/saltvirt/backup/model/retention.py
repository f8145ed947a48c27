"""Which backups of a guest stay at a target, and which may be removed.

Nothing is ever merged: what a backup that stays stands on stays with it, and goes when the last of
them goes. That costs at most one chain's increments, and no byte of a backup that is good is ever
written again.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from saltvirt.backup.model import record
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.record import BackupRecord

# why a backup is held
READ = "it is being read"


@dataclass(frozen=True)
class Retention:
    """So many stay: of the last ones; and the last of so many hours, days, weeks (from Monday),
    months and years that have one, in UTC. With nothing but zeros all stay."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    @property
    def is_set(self) -> bool:
        """Is anything to be removed at all?"""
        return any(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class RetentionVerdict:
    """stays: whether a backup does, and the words why, or why not."""

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
    """What becomes of each backup of a guest, the newest first: in this order they are removed.

    holds: name to why it stays whatever the rules say, as READ. One that is not good takes no good
    one's place, and stays as long as the same rules would keep it if it were: most of it may be
    readable. What cannot be read stays, with all that is older, as it may stand on that, and with
    what stands on it, which may be good. The newest good one of a disk that later backups skipped
    stays.
    """
    retained = _select_by_rules(catalog.good_records, retention)
    # those that lack a file take no place of those that were only found broken
    fit = [item for item in catalog.records if _is_fit(catalog, item)]
    for backup_id, reason in [
        *_select_by_rules(fit, retention).items(),
        *_select_by_rules(catalog.records, retention).items(),
    ]:
        retained.setdefault(
            backup_id, f"{reason}, though it is not good: {catalog.problem(backup_id)}"
        )
    if not retention.is_set:
        retained = dict.fromkeys(catalog.backups, "retention is not set")
    for backup_id, reason in [*_forced_holds(catalog, holds), *_skipped_holds(catalog)]:
        retained.setdefault(backup_id, reason)
    # one that stays for one of its disks stays whole: with what the others stand on
    todo = list(retained)
    while todo:
        backup_id = todo.pop()
        for below in catalog.dependencies(backup_id) - {*retained}:
            retained[below] = f"{backup_id} stands on it"
            todo.append(below)
    return [
        RetentionVerdict(
            item, item in retained, retained.get(item) or _removal_reason(catalog, item)
        )
        for item in sorted(catalog.backups, reverse=True)
    ]


def _is_fit(catalog: Catalog, backup_record: BackupRecord) -> bool:
    return all(
        catalog.file_problem(backup_record.ident, disk.target) is None
        for disk in backup_record.parts
    )


def _select_by_rules(records: list[BackupRecord], retention: Retention) -> dict[str, str]:
    """Name to which rule wants it, the first one. Each rule wants the newest one."""
    newest_first = records[::-1]
    selected = {
        backup_record.ident: f"among the last {retention.last}"
        for backup_record in newest_first[: retention.last]
    }
    for rule, period in _PERIODS.items():
        remaining, before = getattr(retention, rule), None
        for backup_record in newest_first:
            current = period(record.moment(backup_record.when))
            # by the order of the backups, not of their clocks: one from 2099 ages as all do
            if remaining and current != before:
                selected.setdefault(
                    backup_record.ident, f"among the {getattr(retention, rule)} {rule}"
                )
                remaining, before = remaining - 1, current
    return selected


def _forced_holds(catalog: Catalog, holds: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, why) of those that stay because nobody can tell, or because they are in use."""
    all_, good = list(catalog.backups), catalog.good_ids
    result = [(item, holds[item]) for item in all_ if item in holds]
    unread = [item.backup_id for item in catalog if item.record is None]
    by_hand = "its record cannot be read: look at it, and remove it by hand"
    result += [(item, by_hand) for item in unread]
    if unread:
        reason = f"{unread[-1]}, which cannot be read, may stand on it"
        result += [(item, reason) for item in all_[: all_.index(unread[-1])]]
    unsure = {
        item.backup_id: f"it may be good: {item.result_error}"
        for item in catalog
        if item.result_error
    }
    result += unsure.items()
    for item in all_:
        for below in sorted(catalog.dependencies(item) & {*unread, *unsure}):
            result.append((item, f"{below}, which it stands on, may be good"))
    newer = all_[all_.index(good[-1]) + 1 :] if good else all_
    return result + [(item, "no newer one is good") for item in newer]


def _skipped_holds(catalog: Catalog) -> list[tuple[str, str]]:
    """(name, why) of the newest backup in which a disk is good, of each disk that the newest good
    backup skips, as one whose secret libvirt gives to a running guest alone; and the same of what
    is in the state."""
    good = catalog.good_records
    result = []
    for target in sorted(good[-1].skipped if good else {}):
        disk = record.STATE if target in (record.FIRMWARE, record.TPM) else target
        for backup_record in reversed(catalog.records):
            has = backup_record.disk(disk) and target not in backup_record.skipped
            if has and catalog.disk_problem(backup_record.ident, disk) is None:
                reason = f"the last that has {target}, which {good[-1].ident} skips"
                result.append((backup_record.ident, reason))
                break
    return result


def _removal_reason(catalog: Catalog, backup_id: str) -> str:
    wrong = catalog.problem(backup_id)
    return f"no rule keeps it, and it is not good: {wrong}" if wrong else "no rule keeps it"
