"""What a backup is called: ``000007-20261123T155220Z-1f3a9c2e``.

A number of its guest's at its target, the time as the clock had it, and something by chance. The
number alone orders them, so that a clock that was wrong, or was put back, changes no order; what is
by chance keeps a name from being given twice where the last backup was removed by hand.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from saltvirt.errors import InvalidInput, NotFound, Refused
from saltvirt.units import short_repr

if TYPE_CHECKING:
    from saltvirt.backup.model.answers import ListedBackup

_BACKUP_ID = re.compile(r"[0-9]{6}-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_TIMESTAMP = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")
_MAX_NUMBER = 999_999
LATEST = "latest"


def is_backup_id(text: object) -> bool:
    """Is it the name of a backup?"""
    return isinstance(text, str) and _BACKUP_ID.fullmatch(text) is not None


def moment(backup_id: str) -> datetime.datetime | None:
    """The time in its name; None where it is no name of a backup, or that no time."""
    try:
        time = datetime.datetime.strptime(backup_id[7:23], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return time.replace(tzinfo=datetime.timezone.utc) if is_backup_id(backup_id) else None


def number(backup_id: str) -> int:
    """Its number."""
    return int(backup_id[:6])


def following(backup_ids: Iterable[str], timestamp: str, chance: str) -> str:
    """The name of the next backup of a guest.

    backup_ids: of all that are there, good or not. timestamp: as ``2026-11-23T15:52:20Z``. chance:
    eight
    hexadecimal digits. Raises InvalidInput when there is no number left.
    """
    after = max((number(backup_id) for backup_id in backup_ids), default=0) + 1
    if after > _MAX_NUMBER:
        raise InvalidInput(
            f"this target has backup number {_MAX_NUMBER} of the guest: there is no next"
        )
    time = _TIMESTAMP.sub(r"\1\2\3T\4\5\6Z", timestamp)
    new_id = f"{after:06d}-{time}-{chance}"
    if not is_backup_id(new_id):
        raise ValueError(new_id)
    return new_id


def find(backup_ids: Collection[str], query: object, guest: str = "it") -> str:
    """The backup that a person means: its name, its number, or ``latest``.

    backup_ids: of one guest. guest: the guest, and the target, in words. Raises NotFound, and
    InvalidInput where several have that number.
    """
    text = str(query).strip()
    if not backup_ids:
        raise NotFound(f"there is no backup of {guest}")
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
        raise InvalidInput(f"{', '.join(sorted(same))} have this number: give the whole name")
    if not same:
        raise NotFound(
            f"there is no backup {short_repr(text)} of {guest}; the newest is {max(backup_ids)}"
        )
    return same[0]


def refuse_unknown_disk(backup: ListedBackup, disk: str) -> None:
    """Raises NotFound where a backup has no disk of that target."""
    if disk not in backup.disks:
        disks = ", ".join(sorted(backup.disks))
        raise NotFound(f"the backup {backup.ident} has no disk {short_repr(disk)}, but {disks}")


def refuse_conflicts(new: str | None, in_place: bool, stop: bool, disk: str | None) -> None:
    """Raises InvalidInput for what makes no sense together where a guest is made of a backup.

    new: the name of another guest. in_place: it takes the place of the guest; stop: which is
    powered
    off for it. disk: this one alone.
    """
    if new and (in_place or disk):
        raise InvalidInput("new=NAME is another guest: not with over or disk")
    if stop and not in_place:
        raise InvalidInput("stop=True is for over=True: nothing else stops a guest")


def find_listed(
    listed: Iterable[ListedBackup],
    name: str,
    query: object,
    disk: str | None = None,
    damaged: bool = False,
    uuid: str | None = None,
    *,
    target: str,
) -> ListedBackup:
    """The backup of one guest that a person means, and that is good.

    listed: of all guests. name: of the guest, which it has, or had once, or its UUID. query: as for
    ``find``. disk: only that one is wanted, so only that has to be good. damaged: it need not be.
    uuid: of the guest that has the name now; None: nobody asks. target: the name of the target that
    was listed. Raises as ``find`` does, and Refused where it is not good.
    """
    backups = _guest_backups(listed, name, uuid)
    backup = backups[find(backups, query, f"{name} in the target {target}")]
    problem = backup.wrong
    if disk and backup.guest is not None:
        problem = backup.broken.get(disk)
    if problem and not (damaged and backup.guest is not None):
        raise Refused(
            f"the backup {backup.ident} is not good: {problem}{_suggestion(backups, disk, backup)}"
        )
    return backup


def _guest_backups(
    listed: Iterable[ListedBackup], name: str, uuid: str | None
) -> dict[str, ListedBackup]:
    """The backups of the guest of that name, by their own."""
    guests: dict[str, dict[str, ListedBackup]] = {}
    for backup in listed:
        guests.setdefault(str(backup.uuid), {})[backup.ident] = backup
    if name in guests or uuid in guests:
        return guests[name if name in guests else str(uuid)]
    names = {
        each: [backup.guest for _, backup in sorted(backups.items()) if backup.guest is not None]
        for each, backups in guests.items()
    }
    uuids = [each for each, called in names.items() if called[-1:] == [name]]
    uuids = sorted(uuids or [each for each, called in names.items() if name in called])
    if len(uuids) > 1:
        raise InvalidInput(f"several guests were called {name}: give one of {', '.join(uuids)}")
    return guests[uuids[0]] if uuids else {}


def _suggestion(backups: Mapping[str, ListedBackup], disk: str | None, bad: ListedBackup) -> str:
    good = [
        backup.ident for backup in backups.values()
        if backup.guest is not None and not (backup.broken.get(disk) if disk else backup.wrong)
    ]  # fmt: skip
    text = f"; the newest good one is {max(good)}" if good else ""
    if bad.guest is not None:
        text += "; damaged=True restores what can be read of it"
    return text
