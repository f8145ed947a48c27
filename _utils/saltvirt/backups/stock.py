"""What a target has of one guest, and what of it is good.

A disk of a backup is good when its record could be read, its file is there and so long as it was,
nothing was found broken when it was last read back, and all that is true of what it stands on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt.backups import record
from saltvirt.backups.marks import Verified
from saltvirt.backups.record import BackupDisk, Record


@dataclass(frozen=True)
class Backup:
    """A backup as it lies at its target.

    record: None where it cannot be read; trouble says why. lengths: the files of its folder that
    belong to its disks, the definition, and how long each is. verified: None: it was never read
    back. unsure: why what was found then cannot be read; then it counts as broken, and may be good.
    """

    ident: str
    record: Record | None = None
    trouble: str | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    verified: Verified | None = None
    unsure: str | None = None


class Stock:
    """The backups of one guest at one target."""

    def __init__(self, backups: Iterable[Backup]) -> None:
        self.backups = {one.ident: one for one in sorted(backups, key=lambda one: one.ident)}

    def __iter__(self) -> Iterator[Backup]:
        return iter(self.backups.values())

    @property
    def records(self) -> list[Record]:
        """Those that can be read, the oldest first."""
        return [one.record for one in self.backups.values() if one.record]

    @property
    def last(self) -> Backup | None:
        """The newest, good or not."""
        return self.backups[max(self.backups)] if self.backups else None

    def chain(self, ident: str | None, target: str) -> list[tuple[str, BackupDisk]]:
        """The disk of that name and what it stands on, itself first, as far as it is there."""
        found, at = [], ident
        while at is not None:
            backup = self.backups.get(at)
            disk = backup.record.disk(target) if backup and backup.record else None
            if disk is None:
                break
            found.append((at, disk))
            # a record's own check sees to it that a parent has a smaller number
            at = disk.parent
        return found

    def wrong_disk(self, ident: str, target: str) -> str | None:
        """What is wrong with that disk of that backup, or with the lowest that it stands on and
        that is not good; None: nothing is known to be."""
        chain = self.chain(ident, target)
        lowest = chain[-1][1].parent if chain else ident
        if lowest is not None:  # the chain ends where something is missing
            why = self._own(lowest, target)
            return f"{lowest}, which it stands on: {why}" if chain else why
        for at, disk in reversed(chain):
            why = self._own(at, target) or self._misfit(disk, target)
            if why:
                return why if at == ident else f"{at}, which it stands on: {why}"
        return None

    def _misfit(self, disk: BackupDisk, target: str) -> str | None:
        """Why a disk cannot stand on what it does."""
        below = self.chain(disk.parent, target)
        if below and below[0][1].size_bytes != disk.size_bytes:
            return f"{disk.parent}, which it stands on, has another size"
        return None

    def _own(self, ident: str, target: str) -> str | None:
        """What is wrong with the disk itself, whatever it stands on."""
        backup = self.backups.get(ident)
        if backup is None or backup.record is None:
            return (backup.trouble or "it has no record") if backup else "it is gone"
        disk = backup.record.disk(target)
        if disk is None:
            return f"it has no disk {target}"
        if backup.verified and target in backup.verified.broken:
            return backup.verified.broken[target]
        return _missing(backup, disk)

    def unfit(self, ident: str, target: str) -> str | None:
        """Why that disk of that backup need not even be read: a file is gone, or has another
        length, of its own or below. What was found when it was read is not asked."""
        for at, disk in self.chain(ident, target):
            found = _missing(self.backups[at], disk)
            if found is None and disk.parent and not self.chain(disk.parent, target):
                below = self.backups.get(disk.parent)
                found = f"it stands on {disk.parent}: {below.trouble if below else 'it is gone'}"
            if found:
                return found if at == ident else f"{at}, which it stands on: {found}"
        return None

    def wrong(self, ident: str) -> str | None:
        """What is wrong with a backup, of its disks the first; None: it is good."""
        backup = self.backups[ident]
        if backup.record is None:
            return backup.trouble or "it has no record"
        if record.DEFINITION not in backup.lengths:
            return f"{record.DEFINITION} is gone"
        if backup.verified and "" in backup.verified.broken:
            return backup.verified.broken[""]
        for disk in backup.record.parts:
            found = self.wrong_disk(ident, disk.target)
            if found:
                return f"{disk.target}: {found}"
        return None

    def broken(self, ident: str) -> dict[str, str]:
        """Disk to what is wrong with it, of those that are not good."""
        told = self.backups[ident].record
        found = (
            {one.target: self.wrong_disk(ident, one.target) for one in told.parts} if told else {}
        )
        return {disk: why for disk, why in found.items() if why}

    @property
    def good_records(self) -> list[Record]:
        """Those that are, the oldest first."""
        return [one for one in self.records if self.wrong(one.ident) is None]

    @property
    def good(self) -> list[str]:
        """Their names."""
        return [one.ident for one in self.good_records]

    def needs(self, ident: str) -> set[str]:
        """All the backups without which that one cannot be read, however far below; not itself."""
        told = self.backups[ident].record
        if told is None:
            return set()
        chains = [self.chain(ident, disk.target) for disk in told.disks]
        found = {one for chain in chains for at, disk in chain for one in (at, disk.parent)}
        return (set(self.backups) - {ident}) & found


def _missing(backup: Backup, disk: BackupDisk) -> str | None:
    for name in (disk.file, disk.pieces):
        if name not in backup.lengths:
            return f"{name} is gone"
    length = backup.lengths[disk.file]
    if length == disk.stored_bytes:
        return None
    return f"{disk.file} has {length} bytes, it had {disk.stored_bytes}"
