"""Age of backups."""

from __future__ import annotations

from collections.abc import Iterable

from saltvirt.backup.model import record
from saltvirt.backup.model.answers import ListedBackup


def newest(
    backups: Iterable[ListedBackup], uuid: str, now_s: float
) -> tuple[float, ListedBackup] | None:
    """Return (age in seconds, backup) of the newest good backup of the guest with this UUID.

    Compare UUIDs, because an earlier guest may have had the same name. Ignore backups from the
    future. Of backups of the same second, the one with the highest id is the newest.
    """
    candidates = [
        (age_s, item)
        for item in backups
        if item.uuid == uuid and item.problem is None
        for age_s in [_age(item, now_s)]
        if age_s is not None and age_s >= 0
    ]
    return max(candidates, key=lambda item: (-item[0], item[1].backup_id), default=None)


def _age(backup: ListedBackup, now_s: float) -> float | None:
    """Return the age reported by the target host, else the age according to the local clock."""
    if backup.age_s is not None:
        return backup.age_s
    try:
        return now_s - record.moment(backup.taken_at or "").timestamp()
    except ValueError:
        return None
