"""What the machine of a backup target answers to the master's calls."""

from __future__ import annotations

from saltvirt import names
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.backup.model import calls as backup_calls
from saltvirt.backup.model.pins import BackupPin, PinnedBackup
from saltvirt.backup.target import pins
from saltvirt.backup.target.target import open_target
from saltvirt.spec import values


@handles(backup_calls.LIST_PINS)
def list_pins(_host: MinionContext, request: backup_calls.PinsRequest) -> list[PinnedBackup]:
    """Return the guests that run from a backup at the target."""
    target = open_target(request.folder, request.mounted)
    return [*pins.list_all(target.folder, target.guests())]


@handles(backup_calls.UNPIN)
def unpin(_host: MinionContext, request: backup_calls.UnpinRequest) -> bool:
    """Release a backup from a guest that no longer runs from it. Return whether it was pinned.

    Only for a guest that has all its blocks, or that no longer exists: the caller ensures that.
    """
    target = open_target(request.folder, request.mounted)
    pin = BackupPin(names.existing_guest(request.guest), values.text(request.host, "host"))
    return pins.remove_pin(target.folder, request.uuid, request.backup, pin)
