"""Which disk of a guest can be taken as an increment, and which has to be read whole, and why.

An increment is what a bitmap in the disk's own file says has changed since the backup that it is
named for. It is good where nothing can have been written past that bitmap: so whatever is not as
that backup left it makes the disk a whole one, and no other disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt import names
from saltvirt.backup.model import backup_ids, record
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.record import QCOW2, BackupDiskRecord

GOOD, INCONSISTENT, DISABLED = "good", "inconsistent", "disabled"
# as many files are opened to read the last of a chain
CHAIN = 30
PREFIX = names.CHECKPOINT
# a checkpoint of ours that no target knows may be another master's for so long
ABANDONED_DAYS = 30
# why a CD or floppy drive is in no backup
DRIVE = "a drive for "


@dataclass(frozen=True)
class BackupSourceDisk:
    """A disk of the guest as it is now.

    target: libvirt's name. size_bytes: as the guest sees it. source: what the definition names as
    its source, in words that stay the same as long as that does. format: of its file.
    bitmaps: of its uppermost file, by name: GOOD (it records, consistent, on disk or in a QEMU that
    keeps it), INCONSISTENT (QEMU died over it), DISABLED (it does not record).
    """

    target: str
    size_bytes: int
    source: str
    format: str = QCOW2
    bitmaps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BackupSourceGuest:
    """The guest as it is now.

    host: where. checkpoints: the names of those that libvirt there knows. name: the guest's.
    """

    uuid: str
    host: str
    disks: tuple[BackupSourceDisk, ...]
    checkpoints: Collection[str] = ()
    name: str = ""


@dataclass(frozen=True)
class DiskBackupPlan:
    """How a disk is to be taken.

    parent: the backup that the increment stands on, with since, libvirt's checkpoint; both None:
    it is taken whole, and reason says why.
    """

    target: str
    parent: str | None = None
    since: str | None = None
    reason: str | None = None

    @property
    def is_full(self) -> bool:
        """Is all of it read?"""
        return self.parent is None


@dataclass(frozen=True)
class _Base:
    """A disk at its target that an increment would stand on. host, guest: where the guest was then,
    and what it was called."""

    backup_id: str
    host: str
    guest: str
    disk: BackupDiskRecord


def plan(
    guest: BackupSourceGuest,
    catalog: Catalog,
    chain: int = CHAIN,
    full: bool = False,
    key: str | None = None,
) -> list[DiskBackupPlan]:
    """How each disk of the guest is to be taken, in the order of the guest's.

    catalog: what this target has of it: increments are a target's own. chain: so many backups at
    most stand on each other, the whole one among them. full: all are asked for so. key: with
    which they are to be encrypted, as a record has it.
    """
    return [_disk(disk, guest, catalog, chain, full, key) for disk in guest.disks]


def checkpoint(backup_id: str) -> str:
    """The name of the checkpoint that is made with a backup."""
    return f"{PREFIX}{backup_id}"


def needed(catalog: Catalog) -> set[str]:
    """The checkpoints from which the next increments at this target begin."""
    last = catalog.last.record if catalog.last else None
    return {disk.checkpoint for disk in last.disks if disk.checkpoint} if last else set()


def superseded(checkpoints: Iterable[str], catalog: Catalog) -> set[str]:
    """Of a guest's checkpoints those that backups at this target made, and from which none goes on.
    Others may be another master's, or of a target that nobody asks: they are not for us to remove.
    """
    created = {disk.checkpoint for record in catalog.records for disk in record.disks}
    return {*checkpoints} & {name for name in created if name} - needed(catalog)


def abandoned(checkpoints: Iterable[str], today: str) -> set[str]:
    """Of the checkpoints that no target knows those of ours that are so old that nobody goes on
    from them. today: as a record has it."""
    now = record.moment(today)
    created_at = {
        name: backup_ids.moment(name.removeprefix(PREFIX)) for name in checkpoints if is_ours(name)
    }
    return {
        name
        for name, moment in created_at.items()
        if moment and (now - moment).days >= ABANDONED_DAYS
    }


def is_ours(checkpoint: str) -> bool:
    """Whether a backup made it."""
    return checkpoint.startswith(PREFIX)


def _disk(
    disk: BackupSourceDisk,
    guest: BackupSourceGuest,
    catalog: Catalog,
    chain: int,
    full: bool,
    key: str | None,
) -> DiskBackupPlan:
    base, reason = _base(disk, catalog)
    if full:
        base, reason = None, "it was asked for"
    if base is not None:
        reason = _key_mismatch(base.disk.key, key)
        reason = reason or next(_reasons(disk, guest, catalog, base, chain), None)
    if base is None or reason is not None:
        return DiskBackupPlan(disk.target, reason=reason)
    return DiskBackupPlan(disk.target, parent=base.backup_id, since=base.disk.checkpoint)


def _base(disk: BackupSourceDisk, catalog: Catalog) -> tuple[_Base | None, str | None]:
    """What an increment would stand on, or why there is nothing."""
    last = catalog.last
    if last is None:
        return None, "the first backup of the guest at this target"
    if last.record is None:
        return None, f"the last backup cannot be read: {last.record_error or 'it has no record'}"
    base_disk = last.record.disk(disk.target)
    if base_disk is None:
        return None, f"the disk is not in the last backup, {last.backup_id}"
    return _Base(last.backup_id, last.record.host, last.record.guest, base_disk), None


def _reasons(
    disk: BackupSourceDisk, guest: BackupSourceGuest, catalog: Catalog, base: _Base, chain: int
) -> Iterator[str]:
    """Why the disk has to be read whole, the plainest first."""
    base_disk, has_moved = base.disk, guest.host != base.host
    problem = catalog.disk_problem(base.backup_id, disk.target)
    if problem:
        yield f"the last backup of it is not good: {problem}"
    if base_disk.size_bytes != disk.size_bytes:
        yield f"it was resized from {base_disk.size_bytes} to {disk.size_bytes} bytes"
    if not _is_same(base, disk, guest):
        yield f"it was replaced: it was {base_disk.source}, it is {disk.source}"
    if disk.format != QCOW2:
        yield f"a disk of format {disk.format} keeps no record of what was written"
    if base_disk.checkpoint is None:
        yield "the last backup of it made no checkpoint"
    elif base_disk.checkpoint not in guest.checkpoints:
        yield f"libvirt on {guest.host} does not know the checkpoint {base_disk.checkpoint}"
    elif base_disk.checkpoint not in disk.bitmaps:
        detail = f" since the guest moved from {base.host} to {guest.host}" if has_moved else ""
        yield f"its file has no bitmap {base_disk.checkpoint}{detail}"
    elif disk.bitmaps[base_disk.checkpoint] != GOOD:
        state = disk.bitmaps[base_disk.checkpoint]
        yield f"the bitmap {base_disk.checkpoint} in its file is {state}"
    length = len(catalog.chain(base.backup_id, disk.target))
    if chain == 1:
        yield "chains of increments are switched off"
    elif length >= chain:
        yield f"{length} backups stand on each other, at most {chain} may"


def _key_mismatch(before: str | None, now: str | None) -> str | None:
    """Why it cannot stand on what was encrypted otherwise."""
    if before == now:
        return None
    states = [
        f"encrypted by the key {key_name}" if key_name else "not encrypted"
        for key_name in (before, now)
    ]
    return f"the last backup of it is {states[0]}, this one is {states[1]}"


def _is_same(base: _Base, disk: BackupSourceDisk, guest: BackupSourceGuest) -> bool:
    """Is it the disk that was taken? On another host it may lie in another folder, and of a guest
    that was renamed its file may have the new name.

    All disks of a guest have bitmaps of the same names: so a name that two of them share there
    proves nothing.
    """
    if base.disk.source == disk.source:
        return True
    name = guest.name or base.guest
    suffixes = [_file_suffix(candidate.source, name) for candidate in guest.disks]
    suffix = _file_suffix(disk.source, name)
    may_differ = guest.host != base.host or name != base.guest
    return (
        may_differ
        and _file_suffix(base.disk.source, base.guest) == suffix
        and suffixes.count(suffix) == 1
    )


def _file_suffix(source: str, guest: str) -> str:
    """The name of a disk's file, without the guest's at its beginning."""
    return source.rpartition("/")[2].removeprefix(guest)
