"""Names of backups: ``000007-20261123T155220Z-1f3a9c2e``.

A name consists of a number per guest and target, the time, and a random part. Only the number
determines the order, so a wrong clock does not matter. The random part keeps names unique even if
the last backup was removed manually.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable

from saltvirt.errors import InvalidInput, NotFound
from saltvirt.units import short_repr

_BACKUP_ID = re.compile(r"[0-9]{6}-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_TIMESTAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")
_MAX_NUMBER = 999_999
LATEST = "latest"


def is_backup_id(text: object) -> bool:
    """Whether the value is the name of a backup."""
    return isinstance(text, str) and _BACKUP_ID.fullmatch(text) is not None


def moment(backup_id: str) -> datetime.datetime | None:
    """Return the time in the name of a backup; None if the name is not valid."""
    try:
        time = datetime.datetime.strptime(backup_id[7:23], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return time.replace(tzinfo=datetime.timezone.utc) if is_backup_id(backup_id) else None


def number(backup_id: str) -> int:
    """Return the number in the name of a backup."""
    return int(backup_id[:6])


def following(backup_ids: Iterable[str], timestamp: str, chance: str) -> str:
    """Return the name of the guest's next backup.

    backup_ids: of all existing backups, good or not. timestamp: as ``2026-11-23T15:52:20Z``.
    chance: eight hexadecimal digits. Raises InvalidInput if no number is left.
    """
    after = max((number(backup_id) for backup_id in backup_ids), default=0) + 1
    if after > _MAX_NUMBER:
        raise InvalidInput(f"no backup number is left after {_MAX_NUMBER}: use another target")
    time = _TIMESTAMP.sub(r"\1\2\3T\4\5\6Z", timestamp)
    new_id = f"{after:06d}-{time}-{chance}"
    if not is_backup_id(new_id):
        raise ValueError(new_id)
    return new_id


def find(backup_ids: Collection[str], query: object, guest: str = "it") -> str:
    """Resolve a name, a number or ``latest`` to the name of a backup.

    backup_ids: of one guest. guest: guest and target, for messages. Raises NotFound, and
    InvalidInput if several backups have the number.
    """
    text = str(query).strip()
    if not backup_ids:
        raise NotFound(f"no backup of {guest} found")
    if text == LATEST:
        return max(backup_ids)
    if text in backup_ids:
        return text
    same = [
        backup_id
        for backup_id in backup_ids
        if text.isascii() and text.isdigit() and number(backup_id) == int(text)
    ]
    if len(same) > 1:
        raise InvalidInput(f"{', '.join(sorted(same))} have this number: use the full name")
    if not same:
        raise NotFound(
            f"no backup {short_repr(text)} of {guest} found; the newest is {max(backup_ids)}"
        )
    return same[0]


def refuse_conflicts(new: str | None, in_place: bool, stop: bool, disk: str | None) -> None:
    """Raise InvalidInput for arguments of a restore that exclude each other.

    new: name of another guest. in_place: replace the existing guest. stop: power it off for that.
    disk: restore this disk only.
    """
    if new and (in_place or disk):
        raise InvalidInput("new=NAME cannot be combined with in_place or disk")
    if stop and not in_place:
        raise InvalidInput("stop=True requires in_place=True")
