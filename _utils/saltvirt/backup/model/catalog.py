"""Catalog of a guest's backups at a target, and the state of each.

A disk of a backup is good if its record can be read, its file exists and has the recorded size, the
last verification found no problem, and the same is true for all files on which it depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt.backup.model import record
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.model.verification import Verification


@dataclass(frozen=True)
class StoredBackup:
    """A backup as stored at its target.

    record: None if it cannot be read, for the reason in record_error. lengths: sizes of the files
    in its folder that belong to its disks and the definition. verification: None: it was never
    verified. result_error: why the result of the verification cannot be read; the backup then
    counts as broken, but may be good.
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
        """The readable records, the oldest first."""
        return [backup.record for backup in self.backups.values() if backup.record]

    @property
    def last(self) -> StoredBackup | None:
        """The newest backup, good or not."""
        return self.backups[max(self.backups)] if self.backups else None

    def chain(self, backup_id: str | None, target: str) -> list[tuple[str, BackupDiskRecord]]:
        """Return the disk and all on which it depends, itself first, as far as they exist."""
        links, layer_id = [], backup_id
        while layer_id is not None:
            backup = self.backups.get(layer_id)
            disk = backup.record.disk(target) if backup and backup.record else None
            if disk is None:
                break
            links.append((layer_id, disk))
            # a record is refused unless its parent has a smaller number
            layer_id = disk.parent
        return links

    def disk_problem(self, backup_id: str, target: str) -> str | None:
        """Return the problem of a disk of a backup, or of the lowest broken one on which it
        depends; None if no problem is known."""
        chain = self.chain(backup_id, target)
        lowest = chain[-1][1].parent if chain else backup_id
        if lowest is not None:  # the chain ends at a missing backup
            reason = self._own_problem(lowest, target)
            return reason and _of_layer(backup_id, lowest, reason)
        for layer_id, disk in reversed(chain):
            reason = self._own_problem(layer_id, target) or self._size_mismatch(disk, target)
            if reason:
                return _of_layer(backup_id, layer_id, reason)
        return None

    def _size_mismatch(self, disk: BackupDiskRecord, target: str) -> str | None:
        """Return why a disk does not fit the disk on which it depends."""
        below = self.chain(disk.parent, target)
        if below and below[0][1].size_bytes != disk.size_bytes:
            return f"{disk.parent}, on which it depends, has another size"
        return None

    def _own_problem(self, backup_id: str, target: str) -> str | None:
        """Return the problem of the disk itself, regardless of its dependencies."""
        backup = self.backups.get(backup_id)
        if backup is None:
            return "the backup is missing"
        if backup.record is None:
            return backup.record_error or "the record is missing"
        disk = backup.record.disk(target)
        if disk is None:
            return f"the backup has no disk {target}"
        if backup.verification and target in backup.verification.broken_disks:
            return backup.verification.broken_disks[target]
        return _missing_file(backup, disk)

    def file_problem(self, backup_id: str, target: str) -> str | None:
        """Return why a disk of a backup cannot be read: a file of its chain is missing or has
        another size. Results of verifications are ignored."""
        for layer_id, disk in self.chain(backup_id, target):
            problem = _missing_file(self.backups[layer_id], disk)
            if problem is None and disk.parent and not self.chain(disk.parent, target):
                below = self.backups.get(disk.parent)
                reason = below.record_error if below else "the backup is missing"
                problem = f"it depends on {disk.parent}: {reason}"
            if problem:
                return _of_layer(backup_id, layer_id, problem)
        return None

    def problem(self, backup_id: str) -> str | None:
        """Return the first problem of a backup; None if it is good."""
        backup = self.backups[backup_id]
        if backup.record is None:
            return backup.record_error or "the record is missing"
        if record.DEFINITION not in backup.lengths:
            return f"{record.DEFINITION} is missing"
        if backup.verification and "" in backup.verification.broken_disks:
            return backup.verification.broken_disks[""]
        for disk in backup.record.parts:
            problem = self.disk_problem(backup_id, disk.target)
            if problem:
                return f"{disk.target}: {problem}"
        return None

    def broken_disks(self, backup_id: str) -> dict[str, str]:
        """Map the disks that are not good to their problems."""
        backup_record = self.backups[backup_id].record
        problems = (
            {part.target: self.disk_problem(backup_id, part.target) for part in backup_record.parts}
            if backup_record
            else {}
        )
        return {disk: problem for disk, problem in problems.items() if problem}

    @property
    def good_records(self) -> list[BackupRecord]:
        """The good records, the oldest first."""
        return [
            backup_record
            for backup_record in self.records
            if self.problem(backup_record.backup_id) is None
        ]

    @property
    def good_ids(self) -> list[str]:
        """The names of the good backups."""
        return [backup_record.backup_id for backup_record in self.good_records]

    def dependencies(self, backup_id: str) -> set[str]:
        """Return all backups on which this one depends, directly or indirectly."""
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


def _of_layer(backup_id: str, layer_id: str, problem: str) -> str:
    """Return the problem of a backup that another one on which it depends has."""
    return problem if layer_id == backup_id else f"{layer_id}, on which it depends: {problem}"


def _missing_file(backup: StoredBackup, disk: BackupDiskRecord) -> str | None:
    for name in (disk.file, disk.checksums):
        if name not in backup.lengths:
            return f"{name} is missing"
    length = backup.lengths[disk.file]
    if length == disk.stored_bytes:
        return None
    return f"{disk.file} has {length} bytes instead of {disk.stored_bytes}"
