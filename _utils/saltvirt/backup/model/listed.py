"""Lookup in the list of backups that a target has sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from saltvirt.backup.model import backup_ids
from saltvirt.backup.model.answers import ListedBackup
from saltvirt.errors import InvalidInput, NotFound, Refused
from saltvirt.units import short_repr


def refuse_unknown_disk(backup: ListedBackup, disk: str) -> None:
    """Raise NotFound if the backup does not contain the disk."""
    if disk not in backup.disks:
        disks = ", ".join(sorted(backup.disks))
        raise NotFound(
            f"backup {backup.backup_id} has no disk {short_repr(disk)}; its disks are {disks}"
        )


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
    """Return the requested backup of a guest if it is good.

    listed: backups of all guests. name: present or former name of the guest, or its UUID. query: as
    for ``find``. disk: only this disk has to be good. damaged: accept a backup that is not good.
    uuid: of the guest that has the name now, if known. target: name of the listed target. Raises
    what ``find`` raises, and Refused if the backup is not good.
    """
    backups = _guest_backups(listed, name, uuid)
    backup = backups[backup_ids.find(backups, query, f"{name} in the target {target}")]
    problem = backup.problem
    if disk and backup.guest is not None:
        problem = backup.broken_disks.get(disk)
    if problem and not (damaged and backup.guest is not None):
        raise Refused(
            f"backup {backup.backup_id} is not good: {problem}{_suggestion(backups, disk, backup)}"
        )
    return backup


def _guest_backups(
    listed: Iterable[ListedBackup], name: str, uuid: str | None
) -> dict[str, ListedBackup]:
    """Return the backups of the guest with this name, by backup name."""
    guests: dict[str, dict[str, ListedBackup]] = {}
    for backup in listed:
        guests.setdefault(str(backup.uuid), {})[backup.backup_id] = backup
    if name in guests or uuid in guests:
        return guests[name if name in guests else str(uuid)]
    names = {
        each: [backup.guest for _, backup in sorted(backups.items()) if backup.guest is not None]
        for each, backups in guests.items()
    }
    uuids = [each for each, called in names.items() if called[-1:] == [name]]
    uuids = sorted(uuids or [each for each, called in names.items() if name in called])
    if len(uuids) > 1:
        raise InvalidInput(
            f"several guests had the name {name}: use one of the UUIDs {', '.join(uuids)}"
        )
    return guests[uuids[0]] if uuids else {}


def _suggestion(backups: Mapping[str, ListedBackup], disk: str | None, bad: ListedBackup) -> str:
    good = [
        backup.backup_id for backup in backups.values()
        if backup.guest is not None
        and not (backup.broken_disks.get(disk) if disk else backup.problem)
    ]  # fmt: skip
    text = f"; the newest good one is {max(good)}" if good else ""
    if bad.guest is not None:
        text += "; damaged=True restores what can be read"
    return text
