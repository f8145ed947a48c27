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
from saltvirt.units import shown

if TYPE_CHECKING:
    from saltvirt.backups.answers import ListedBackup

_IDENT = re.compile(r"[0-9]{6}-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_WHEN = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")
_MOST = 999_999
LATEST = "latest"


def is_ident(text: object) -> bool:
    """Is it the name of a backup?"""
    return isinstance(text, str) and _IDENT.fullmatch(text) is not None


def moment(ident: str) -> datetime.datetime | None:
    """The time in its name; None where it is no name of a backup, or that no time."""
    try:
        found = datetime.datetime.strptime(ident[7:23], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return None
    return found.replace(tzinfo=datetime.timezone.utc) if is_ident(ident) else None


def number(ident: str) -> int:
    """Its number."""
    return int(ident[:6])


def following(idents: Iterable[str], when: str, chance: str) -> str:
    """The name of the next backup of a guest.

    idents: of all that are there, good or not. when: as ``2026-11-23T15:52:20Z``. chance: eight
    hexadecimal digits. Raises InvalidInput when there is no number left.
    """
    after = max((number(one) for one in idents), default=0) + 1
    if after > _MOST:
        raise InvalidInput(f"this target has backup number {_MOST} of the guest: there is no next")
    time = _WHEN.sub(r"\1\2\3T\4\5\6Z", when)
    found = f"{after:06d}-{time}-{chance}"
    if not is_ident(found):
        raise ValueError(found)
    return found


def find(idents: Collection[str], asked: object, guest: str = "it") -> str:
    """The backup that a person means: its name, its number, or ``latest``.

    idents: of one guest. guest: the guest, and the target, in words. Raises NotFound, and
    InvalidInput where several have that number.
    """
    text = str(asked).strip()
    if not idents:
        raise NotFound(f"there is no backup of {guest}")
    if text == LATEST:
        return max(idents)
    if text in idents:
        return text
    same = [one for one in idents if text.isascii() and text.isdigit() and number(one) == int(text)]
    if len(same) > 1:
        raise InvalidInput(f"{', '.join(sorted(same))} have this number: give the whole name")
    if not same:
        raise NotFound(f"there is no backup {shown(text)} of {guest}; the newest is {max(idents)}")
    return same[0]


def refuse_unknown_disk(backup: ListedBackup, disk: str) -> None:
    """Raises NotFound where a backup has no disk of that target."""
    if disk not in backup.disks:
        known = ", ".join(sorted(backup.disks))
        raise NotFound(f"the backup {backup.ident} has no disk {shown(disk)}, but {known}")


def refuse_unfit(new: str | None, over: bool, stop: bool, disk: str | None) -> None:
    """Raises InvalidInput for what makes no sense together where a guest is made of a backup.

    new: the name of another guest. over: it takes the place of the guest; stop: which is powered
    off for it. disk: this one alone.
    """
    if new and (over or disk):
        raise InvalidInput("new=NAME is another guest: not with over or disk")
    if stop and not over:
        raise InvalidInput("stop=True is for over=True: nothing else stops a guest")


def meant(
    listed: Iterable[ListedBackup],
    name: str,
    asked: object,
    disk: str | None = None,
    damaged: bool = False,
    uuid: str | None = None,
    *,
    target: str,
) -> ListedBackup:
    """The backup of one guest that a person means, and that is good.

    listed: of all guests. name: of the guest, which it has, or had once, or its UUID. asked: as for
    ``find``. disk: only that one is wanted, so only that has to be good. damaged: it need not be.
    uuid: of the guest that has the name now; None: nobody asks. target: the name of the target that
    was listed. Raises as ``find`` does, and Refused where it is not good.
    """
    mine = _of_one(listed, name, uuid)
    found = mine[find(mine, asked, f"{name} in the target {target}")]
    wrong = found.wrong
    if disk and found.guest is not None:
        wrong = found.broken.get(disk)
    if wrong and not (damaged and found.guest is not None):
        raise Refused(f"the backup {found.ident} is not good: {wrong}{_instead(mine, disk, found)}")
    return found


def _of_one(listed: Iterable[ListedBackup], name: str, uuid: str | None) -> dict[str, ListedBackup]:
    """The backups of the guest of that name, by their own."""
    guests: dict[str, dict[str, ListedBackup]] = {}
    for one in listed:
        guests.setdefault(str(one.uuid), {})[one.ident] = one
    if name in guests or uuid in guests:
        return guests[name if name in guests else str(uuid)]
    names = {
        each: [one.guest for _, one in sorted(mine.items()) if one.guest is not None]
        for each, mine in guests.items()
    }
    known = [each for each, called in names.items() if called[-1:] == [name]]
    known = sorted(known or [each for each, called in names.items() if name in called])
    if len(known) > 1:
        raise InvalidInput(f"several guests were called {name}: give one of {', '.join(known)}")
    return guests[known[0]] if known else {}


def _instead(mine: Mapping[str, ListedBackup], disk: str | None, bad: ListedBackup) -> str:
    good = [
        one.ident for one in mine.values()
        if one.guest is not None and not (one.broken.get(disk) if disk else one.wrong)
    ]  # fmt: skip
    text = f"; the newest good one is {max(good)}" if good else ""
    if bad.guest is not None:
        text += "; damaged=True restores what can be read of it"
    return text
