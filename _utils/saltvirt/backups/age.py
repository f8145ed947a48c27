"""How old backups are."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable

from saltvirt.backups.answers import ListedBackup

_WHEN = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")


def seconds(when: str | None) -> float | None:
    """Seconds since 1970 of a time as records have it; None where it is none."""
    match = _WHEN.fullmatch(when or "")
    return float(calendar.timegm(tuple(map(int, match.groups())))) if match else None


def newest(
    backups: Iterable[ListedBackup], uuid: str, now_s: float
) -> tuple[float, ListedBackup] | None:
    """(its age in seconds, the newest good backup) of the guest of that UUID: one of its name may
    be of a guest that was there before. One of a time to come is not counted on."""
    found = [
        (now_s - at_s, one)
        for one in backups
        if one.uuid == uuid and one.wrong is None
        for at_s in [seconds(one.when)]
        if at_s is not None and at_s <= now_s
    ]
    return min(found, key=lambda one: one[0], default=None)
