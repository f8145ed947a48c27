"""Pins of backups from which guests run: a pinned backup, and all on which it depends, is not
removed until the master releases it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from saltvirt import errors
from saltvirt.backup.model import backup_ids, pins, record
from saltvirt.backup.model.pins import BackupPin, BackupPins, PinnedBackup
from saltvirt.backup.target.safe_folder import SafeFolder

_LOCK = ".stands"
_WAIT_S = 10
UNREADABLE = BackupPin("an unknown guest", "an unknown hypervisor")


def load(folder: SafeFolder, uuid: str, backup_id: str) -> tuple[BackupPin, ...]:
    """Load the pins of a backup. If they cannot be read, assume that there is one."""
    try:
        data = folder.read(uuid, backup_id, pins.FILE, max_bytes=pins.MAX_BYTES)
        pin_list = BackupPins.from_answer(json.loads(data.decode("utf-8")), pins.FILE)
        return pin_list.pins
    except errors.NotFound:
        return ()
    except (errors.VirtError, ValueError, RecursionError):
        return (UNREADABLE,)


def hold_reason(folder: SafeFolder, uuid: str, backup_id: str) -> str | None:
    """Return why the backup has to be kept; None if it is not pinned."""
    return next((pin.hold_reason for pin in load(folder, uuid, backup_id)), None)


def list_all(folder: SafeFolder, uuids: Iterable[str]) -> Iterator[PinnedBackup]:
    """Yield all pinned backups of the target."""
    for uuid in uuids:
        for backup_id in folder.names(uuid):
            if backup_ids.is_backup_id(backup_id):
                for pin in load(folder, uuid, backup_id):
                    yield PinnedBackup(uuid, backup_id, pin)


def add_pin(folder: SafeFolder, uuid: str, backup_id: str, new_pin: BackupPin) -> None:
    """Pin a backup, which the caller keeps open (``BackupTarget.open_backup``)."""
    _update(folder, uuid, backup_id, lambda current: (*_without(current, new_pin), new_pin))


def remove_pin(folder: SafeFolder, uuid: str, backup_id: str, old_pin: BackupPin) -> bool:
    """Unpin a backup; return whether it was pinned."""
    if not any(pin.is_same_guest(old_pin) for pin in load(folder, uuid, backup_id)):
        return False
    _update(folder, uuid, backup_id, lambda current: _without(current, old_pin))
    return True


def _without(current: tuple[BackupPin, ...], excluded: BackupPin) -> tuple[BackupPin, ...]:
    return tuple(pin for pin in current if not pin.is_same_guest(excluded))


def _update(
    folder: SafeFolder,
    uuid: str,
    backup_id: str,
    change: Callable[[tuple[BackupPin, ...]], tuple[BackupPin, ...]],
) -> None:
    with folder.lock(uuid, _LOCK, wait_s=_WAIT_S):
        current = load(folder, uuid, backup_id)
        if UNREADABLE in current:
            raise errors.BadAnswer(f"cannot read {pins.FILE} of {backup_id}: repair the file")
        after = change(current)
        if after:
            data = record.as_json(BackupPins(after))
            folder.write(uuid, backup_id, pins.FILE, data=data)
        else:
            folder.remove(uuid, backup_id, pins.FILE)
