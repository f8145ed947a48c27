"""How old backups are."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable

from saltvirt.backup.model.answers import ListedBackup

_TIMESTAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


def seconds(timestamp: str | None) -> float | None:
    """Seconds since 1970 of a time as records have it; None where it is none."""
    match = _TIMESTAMP.fullmatch(timestamp or "")
    return float(calendar.timegm(tuple(map(int, match.groups())))) if match else None


def newest(
    backups: Iterable[ListedBackup], uuid: str, now_s: float
) -> tuple[float, ListedBackup] | None:
    """(its age in seconds, the newest good backup) of the guest of that UUID: one of its name may
    be of a guest that was there before. One of a time to come is not counted on."""
    candidates = [
        (age_s, item)
        for item in backups
        if item.uuid == uuid and item.wrong is None
        for age_s in [_age(item, now_s)]
        if age_s is not None and age_s >= 0
    ]
    return min(candidates, key=lambda item: item[0], default=None)


def _age(backup: ListedBackup, now_s: float) -> float | None:
    """By the clock of the machine that has it, as that wrote its time; else by ours."""
    if backup.age_s is not None:
        return backup.age_s
    at_s = seconds(backup.when)
    return None if at_s is None else now_s - at_s
