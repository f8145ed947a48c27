"""Backups on which guests stand: none of them is removed, nor what it stands on itself, until the
master has said that its guest has all its blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.backups import ident as idents
from saltvirt.backups import record, stands
from saltvirt.backups.stands import Stand, Stands, StoodOn

if TYPE_CHECKING:
    from saltvirt.backuphost.target import Target

_LOCK = ".stands"
_WAIT_S = 10
UNREADABLE = Stand("a guest that is not known", "a hypervisor that is not known")


def of(target: Target, uuid: str, ident: str) -> tuple[Stand, ...]:
    """Who stands on a backup. Where that cannot be read somebody does."""
    try:
        data = target.folder.read(uuid, ident, stands.FILE, most=stands.MOST_BYTES)
        found = Stands.from_answer(json.loads(data.decode("utf-8")), stands.FILE)
        return found.stands
    except errors.NotFound:
        return ()
    except (errors.VirtError, ValueError, RecursionError):
        return (UNREADABLE,)


def why(target: Target, uuid: str, ident: str) -> str | None:
    """Why the backup must stay, None where nobody stands on it."""
    return next((one.why for one in of(target, uuid, ident)), None)


def every(target: Target) -> Iterator[StoodOn]:
    """Who stands on which backup here."""
    for uuid in target.guests():
        for ident in target.folder.names(uuid):
            if idents.is_ident(ident):
                for one in of(target, uuid, ident):
                    yield StoodOn(uuid, ident, one)


def take(target: Target, uuid: str, ident: str, stand: Stand) -> None:
    """The guest stands on the backup, which is used meanwhile (``Target.using``)."""
    _put(target, uuid, ident, lambda found: (*_others(found, stand), stand))


def let_go(target: Target, uuid: str, ident: str, stand: Stand) -> bool:
    """The guest stands on it no more; whether it did."""
    if not any(one.is_of(stand) for one in of(target, uuid, ident)):
        return False
    _put(target, uuid, ident, lambda found: _others(found, stand))
    return True


def _others(found: tuple[Stand, ...], stand: Stand) -> tuple[Stand, ...]:
    return tuple(one for one in found if not one.is_of(stand))


def _put(
    target: Target,
    uuid: str,
    ident: str,
    change: Callable[[tuple[Stand, ...]], tuple[Stand, ...]],
) -> None:
    with target.folder.locked(uuid, _LOCK, wait_s=_WAIT_S):
        found = of(target, uuid, ident)
        if UNREADABLE in found:
            raise errors.BadAnswer(f"{stands.FILE} of {ident} cannot be read: put it right")
        after = change(found)
        if after:
            data = record.as_json(Stands(after))
            target.folder.write(uuid, ident, stands.FILE, data=data)
        else:
            target.folder.remove(uuid, ident, stands.FILE)
