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

from saltvirt.backups import record
from saltvirt.backups.record import Record
from saltvirt.backups.stock import Stock

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
class Verdict:
    """stays: whether a backup does, and the words why, or why not."""

    ident: str
    stays: bool
    why: str


def _week(at: datetime.datetime) -> str:
    year, week, _ = at.isocalendar()
    return f"{year}-{week}"


_PERIODS: dict[str, Callable[[datetime.datetime], str]] = {
    "hourly": lambda at: at.strftime("%Y-%m-%dT%H"),
    "daily": lambda at: at.strftime("%Y-%m-%d"),
    "weekly": _week,
    "monthly": lambda at: at.strftime("%Y-%m"),
    "yearly": lambda at: at.strftime("%Y"),
}


def judge(
    stock: Stock, retention: Retention, held: Mapping[str, str] = MappingProxyType({})
) -> list[Verdict]:
    """What becomes of each backup of a guest, the newest first: in this order they are removed.

    held: name to why it stays whatever the rules say, as READ. One that is not good takes no good
    one's place, and stays as long as the same rules would keep it if it were: most of it may be
    readable. What cannot be read stays, with all that is older, as it may stand on that, and with
    what stands on it, which may be good. The newest good one of a disk that later backups skipped
    stays.
    """
    stays = _wanted(stock.good_records, retention)
    # those that lack a file take no place of those that were only found broken
    fit = [one for one in stock.records if _is_fit(stock, one)]
    for ident, why in [
        *_wanted(fit, retention).items(),
        *_wanted(stock.records, retention).items(),
    ]:
        stays.setdefault(ident, f"{why}, though it is not good: {stock.wrong(ident)}")
    if not retention.is_set:
        stays = dict.fromkeys(stock.backups, "retention is not set")
    for ident, why in [*_unjudged(stock, held), *_last_of_skipped(stock)]:
        stays.setdefault(ident, why)
    # one that stays for one of its disks stays whole: with what the others stand on
    todo = list(stays)
    while todo:
        ident = todo.pop()
        for below in stock.needs(ident) - {*stays}:
            stays[below] = f"{ident} stands on it"
            todo.append(below)
    return [
        Verdict(one, one in stays, stays.get(one) or _why_not(stock, one))
        for one in sorted(stock.backups, reverse=True)
    ]


def _is_fit(stock: Stock, one: Record) -> bool:
    return all(stock.unfit(one.ident, disk.target) is None for disk in one.parts)


def _wanted(records: list[Record], retention: Retention) -> dict[str, str]:
    """Name to which rule wants it, the first one. Each rule wants the newest one."""
    newest_first = records[::-1]
    found = {
        one.ident: f"among the last {retention.last}" for one in newest_first[: retention.last]
    }
    for rule, period in _PERIODS.items():
        left, before = getattr(retention, rule), None
        for one in newest_first:
            here = period(record.moment(one.when))
            # by the order of the backups, not of their clocks: one from 2099 ages as all do
            if left and here != before:
                found.setdefault(one.ident, f"among the {getattr(retention, rule)} {rule}")
                left, before = left - 1, here
    return found


def _unjudged(stock: Stock, held: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, why) of those that stay because nobody can tell, or because they are in use."""
    all_, good = list(stock.backups), stock.good
    found = [(one, held[one]) for one in all_ if one in held]
    unread = [one.ident for one in stock if one.record is None]
    by_hand = "its record cannot be read: look at it, and remove it by hand"
    found += [(one, by_hand) for one in unread]
    if unread:
        why = f"{unread[-1]}, which cannot be read, may stand on it"
        found += [(one, why) for one in all_[: all_.index(unread[-1])]]
    unsure = {one.ident: f"it may be good: {one.unsure}" for one in stock if one.unsure}
    found += unsure.items()
    for one in all_:
        for below in sorted(stock.needs(one) & {*unread, *unsure}):
            found.append((one, f"{below}, which it stands on, may be good"))
    newer = all_[all_.index(good[-1]) + 1 :] if good else all_
    return found + [(one, "no newer one is good") for one in newer]


def _last_of_skipped(stock: Stock) -> list[tuple[str, str]]:
    """(name, why) of the newest backup in which a disk is good, of each disk that the newest good
    backup skips, as one whose secret libvirt gives to a running guest alone; and the same of what
    is in the state."""
    good = stock.good_records
    found = []
    for target in sorted(good[-1].skipped if good else {}):
        disk = record.STATE if target in (record.FIRMWARE, record.TPM) else target
        for one in reversed(stock.records):
            has = one.disk(disk) and target not in one.skipped
            if has and stock.wrong_disk(one.ident, disk) is None:
                why = f"the last that has {target}, which {good[-1].ident} skips"
                found.append((one.ident, why))
                break
    return found


def _why_not(stock: Stock, ident: str) -> str:
    wrong = stock.wrong(ident)
    return f"no rule keeps it, and it is not good: {wrong}" if wrong else "no rule keeps it"
