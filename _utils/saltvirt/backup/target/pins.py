"""Backups on which guests stand: none of them is removed, nor what it stands on itself, until the
master has said that its guest has all its blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.backup.model import backup_ids, pins, record
from saltvirt.backup.model.pins import BackupPin, BackupPins, PinnedBackup

if TYPE_CHECKING:
    from saltvirt.backup.target.target import BackupTarget

_LOCK = ".stands"
_WAIT_S = 10
UNREADABLE = BackupPin("a guest that is not known", "a hypervisor that is not known")


def load(target: BackupTarget, uuid: str, backup_id: str) -> tuple[BackupPin, ...]:
    """Who stands on a backup. Where that cannot be read somebody does."""
    try:
        data = target.folder.read(uuid, backup_id, pins.FILE, max_bytes=pins.MAX_BYTES)
        pin_list = BackupPins.from_answer(json.loads(data.decode("utf-8")), pins.FILE)
        return pin_list.stands
    except errors.NotFound:
        return ()
    except (errors.VirtError, ValueError, RecursionError):
        return (UNREADABLE,)


def hold_reason(target: BackupTarget, uuid: str, backup_id: str) -> str | None:
    """Why the backup must stay, None where nobody stands on it."""
    return next((pin.hold_reason for pin in load(target, uuid, backup_id)), None)


def list_all(target: BackupTarget) -> Iterator[PinnedBackup]:
    """Who stands on which backup here."""
    for uuid in target.guests():
        for backup_id in target.folder.names(uuid):
            if backup_ids.is_backup_id(backup_id):
                for pin in load(target, uuid, backup_id):
                    yield PinnedBackup(uuid, backup_id, pin)


def add_pin(target: BackupTarget, uuid: str, backup_id: str, new_pin: BackupPin) -> None:
    """The guest stands on the backup, which is used meanwhile (``Target.using``)."""
    _update(target, uuid, backup_id, lambda current: (*_without(current, new_pin), new_pin))


def remove_pin(target: BackupTarget, uuid: str, backup_id: str, old_pin: BackupPin) -> bool:
    """The guest stands on it no more; whether it did."""
    if not any(pin.is_same_guest(old_pin) for pin in load(target, uuid, backup_id)):
        return False
    _update(target, uuid, backup_id, lambda current: _without(current, old_pin))
    return True


def _without(current: tuple[BackupPin, ...], excluded: BackupPin) -> tuple[BackupPin, ...]:
    return tuple(pin for pin in current if not pin.is_same_guest(excluded))


def _update(
    target: BackupTarget,
    uuid: str,
    backup_id: str,
    change: Callable[[tuple[BackupPin, ...]], tuple[BackupPin, ...]],
) -> None:
    with target.folder.lock(uuid, _LOCK, wait_s=_WAIT_S):
        current = load(target, uuid, backup_id)
        if UNREADABLE in current:
            raise errors.BadAnswer(f"{pins.FILE} of {backup_id} cannot be read: put it right")
        after = change(current)
        if after:
            data = record.as_json(BackupPins(after))
            target.folder.write(uuid, backup_id, pins.FILE, data=data)
        else:
            target.folder.remove(uuid, backup_id, pins.FILE)
