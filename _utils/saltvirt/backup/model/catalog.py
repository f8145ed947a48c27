"""What a target has of one guest, and what of it is good.

A disk of a backup is good when its record could be read, its file is there and so long as it was,
nothing was found broken when it was last read back, and all that is true of what it stands on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt.backup.model import record
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.model.verification import Verification


@dataclass(frozen=True)
class StoredBackup:
    """A backup as it lies at its target.

    record: None where it cannot be read; trouble says why. lengths: the files of its folder that
    belong to its disks, the definition, and how long each is. verified: None: it was never read
    back. unsure: why what was found then cannot be read; then it counts as broken, and may be good.
    """

    backup_id: str
    record: BackupRecord | None = None
    record_error: str | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    verification: Verification | None = None
    result_error: str | None = None


class Catalog:
    """The backups of one guest at one target."""

    def __init__(self, backups: Iterable[StoredBackup]) -> None:
        self.backups = {
            backup.backup_id: backup
            for backup in sorted(backups, key=lambda backup: backup.backup_id)
        }

    def __iter__(self) -> Iterator[StoredBackup]:
        return iter(self.backups.values())

    @property
    def records(self) -> list[BackupRecord]:
        """Those that can be read, the oldest first."""
        return [backup.record for backup in self.backups.values() if backup.record]

    @property
    def last(self) -> StoredBackup | None:
        """The newest, good or not."""
        return self.backups[max(self.backups)] if self.backups else None

    def chain(self, backup_id: str | None, target: str) -> list[tuple[str, BackupDiskRecord]]:
        """The disk of that name and what it stands on, itself first, as far as it is there."""
        links, layer_id = [], backup_id
        while layer_id is not None:
            backup = self.backups.get(layer_id)
            disk = backup.record.disk(target) if backup and backup.record else None
            if disk is None:
                break
            links.append((layer_id, disk))
            # a record's own check sees to it that a parent has a smaller number
            layer_id = disk.parent
        return links

    def disk_problem(self, backup_id: str, target: str) -> str | None:
        """What is wrong with that disk of that backup, or with the lowest that it stands on and
        that is not good; None: nothing is known to be."""
        chain = self.chain(backup_id, target)
        lowest = chain[-1][1].parent if chain else backup_id
        if lowest is not None:  # the chain ends where something is missing
            reason = self._own_problem(lowest, target)
            return f"{lowest}, which it stands on: {reason}" if chain else reason
        for layer_id, disk in reversed(chain):
            reason = self._own_problem(layer_id, target) or self._size_mismatch(disk, target)
            if reason:
                return (
                    reason if layer_id == backup_id else f"{layer_id}, which it stands on: {reason}"
                )
        return None

    def _size_mismatch(self, disk: BackupDiskRecord, target: str) -> str | None:
        """Why a disk cannot stand on what it does."""
        below = self.chain(disk.parent, target)
        if below and below[0][1].size_bytes != disk.size_bytes:
            return f"{disk.parent}, which it stands on, has another size"
        return None

    def _own_problem(self, backup_id: str, target: str) -> str | None:
        """What is wrong with the disk itself, whatever it stands on."""
        backup = self.backups.get(backup_id)
        if backup is None or backup.record is None:
            return (backup.record_error or "it has no record") if backup else "it is gone"
        disk = backup.record.disk(target)
        if disk is None:
            return f"it has no disk {target}"
        if backup.verification and target in backup.verification.broken:
            return backup.verification.broken[target]
        return _missing_file(backup, disk)

    def file_problem(self, backup_id: str, target: str) -> str | None:
        """Why that disk of that backup need not even be read: a file is gone, or has another
        length, of its own or below. What was found when it was read is not asked."""
        for layer_id, disk in self.chain(backup_id, target):
            problem = _missing_file(self.backups[layer_id], disk)
            if problem is None and disk.parent and not self.chain(disk.parent, target):
                below = self.backups.get(disk.parent)
                problem = (
                    f"it stands on {disk.parent}: {below.record_error if below else 'it is gone'}"
                )
            if problem:
                return (
                    problem
                    if layer_id == backup_id
                    else f"{layer_id}, which it stands on: {problem}"
                )
        return None

    def problem(self, backup_id: str) -> str | None:
        """What is wrong with a backup, of its disks the first; None: it is good."""
        backup = self.backups[backup_id]
        if backup.record is None:
            return backup.record_error or "it has no record"
        if record.DEFINITION not in backup.lengths:
            return f"{record.DEFINITION} is gone"
        if backup.verification and "" in backup.verification.broken:
            return backup.verification.broken[""]
        for disk in backup.record.parts:
            problem = self.disk_problem(backup_id, disk.target)
            if problem:
                return f"{disk.target}: {problem}"
        return None

    def broken_disks(self, backup_id: str) -> dict[str, str]:
        """Disk to what is wrong with it, of those that are not good."""
        backup_record = self.backups[backup_id].record
        problems = (
            {part.target: self.disk_problem(backup_id, part.target) for part in backup_record.parts}
            if backup_record
            else {}
        )
        return {disk: problem for disk, problem in problems.items() if problem}

    @property
    def good_records(self) -> list[BackupRecord]:
        """Those that are, the oldest first."""
        return [
            backup_record
            for backup_record in self.records
            if self.problem(backup_record.ident) is None
        ]

    @property
    def good_ids(self) -> list[str]:
        """Their names."""
        return [backup_record.ident for backup_record in self.good_records]

    def dependencies(self, backup_id: str) -> set[str]:
        """All the backups without which that one cannot be read, however far below; not itself."""
        backup_record = self.backups[backup_id].record
        if backup_record is None:
            return set()
        chains = [self.chain(backup_id, disk.target) for disk in backup_record.disks]
        needed = {
            needed_id
            for chain in chains
            for layer_id, disk in chain
            for needed_id in (layer_id, disk.parent)
        }
        return (set(self.backups) - {backup_id}) & needed


def _missing_file(backup: StoredBackup, disk: BackupDiskRecord) -> str | None:
    for name in (disk.file, disk.checksums):
        if name not in backup.lengths:
            return f"{name} is gone"
    length = backup.lengths[disk.file]
    if length == disk.stored_bytes:
        return None
    return f"{disk.file} has {length} bytes, it had {disk.stored_bytes}"
