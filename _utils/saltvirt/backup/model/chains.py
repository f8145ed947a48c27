"""Decide for each disk whether an increment is possible or a full backup is needed, and why.

An increment contains what a bitmap in the disk's file recorded since the backup that the bitmap is
named after. It is correct only if nothing can have been written without the bitmap. Any deviation
from the state after that backup makes a full backup of this disk necessary; other disks are not
affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saltvirt import names
from saltvirt.backup.model import backup_ids, record
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk, PlannedDisk
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.record import QCOW2, BackupDiskRecord

# states of a bitmap: recording, consistent, and on disk or in a running QEMU; QEMU died; not
# recording
GOOD, INCONSISTENT, DISABLED = "good", "inconsistent", "disabled"
# QEMU opens as many files to read the last backup of a chain
CHAIN = 30
PREFIX = names.CHECKPOINT
# after this time, a checkpoint that no target knows is not in use by another master either
ABANDONED_DAYS = 30
# reason why a CD or floppy drive is not backed up
DRIVE = "a drive for "


@dataclass(frozen=True)
class _Base:
    """A disk at the target on which an increment would depend. host, guest: the hypervisor and the
    name of the guest at that time."""

    backup_id: str
    host: str
    guest: str
    disk: BackupDiskRecord


def plan(
    guest: GuestInspection,
    host: str,
    catalog: Catalog,
    chain: int = CHAIN,
    full: bool = False,
    key: str | None = None,
) -> tuple[PlannedDisk, ...]:
    """Plan the backup of each disk, in the order of the guest's disks.

    host: hypervisor of the guest. catalog: the guest's backups at this target; increments of one
    target are independent of other targets. chain: maximum length of a chain, including the full
    backup. full: back up all disks in full. key: encryption key, as in a record.
    """
    encrypt, planned = key is not None, []
    for disk in guest.disks:
        base, reason = _base(disk, catalog)
        if full:
            base, reason = None, "a full backup was requested"
        if base is not None:
            reason = _key_mismatch(base.disk.key, key)
            reason = reason or next(_reasons(disk, guest, host, catalog, base, chain), None)
        if base is None or reason is not None:
            planned.append(PlannedDisk(disk.target, reason=reason, encrypt=encrypt))
        else:
            since = base.disk.checkpoint
            planned.append(PlannedDisk(disk.target, base.backup_id, since, encrypt=encrypt))
    return tuple(planned)


def checkpoint(backup_id: str) -> str:
    """Return the name of the checkpoint that belongs to a backup."""
    return f"{PREFIX}{backup_id}"


def needed(catalog: Catalog) -> set[str]:
    """Return the checkpoints from which the next increments at this target begin."""
    last = catalog.last.record if catalog.last else None
    return {disk.checkpoint for disk in last.disks if disk.checkpoint} if last else set()


def superseded(checkpoints: Iterable[str], catalog: Catalog) -> set[str]:
    """Return the checkpoints that backups at this target made and no longer need.

    Do not return others: they may belong to another master, or to a target that was not asked.
    """
    created = {disk.checkpoint for record in catalog.records for disk in record.disks}
    return {*checkpoints} & {name for name in created if name} - needed(catalog)


def abandoned(checkpoints: Iterable[str], today: str) -> set[str]:
    """Return our checkpoints that are too old to be in use, of those that no target knows. today:
    as in a record."""
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
    """Whether a backup made the checkpoint."""
    return checkpoint.startswith(PREFIX)


def _base(disk: InspectedDisk, catalog: Catalog) -> tuple[_Base | None, str | None]:
    """Return the disk on which an increment would depend, or the reason why there is none."""
    last = catalog.last
    if last is None:
        return None, "the first backup of the guest at this target"
    if last.record is None:
        return (
            None,
            f"the last backup cannot be read: {last.record_error or 'the record is missing'}",
        )
    base_disk = last.record.disk(disk.target)
    if base_disk is None:
        return None, f"the last backup, {last.backup_id}, does not contain the disk"
    return _Base(last.backup_id, last.record.host, last.record.guest, base_disk), None


def _reasons(
    disk: InspectedDisk,
    guest: GuestInspection,
    host: str,
    catalog: Catalog,
    base: _Base,
    chain: int,
) -> Iterator[str]:
    """Yield the reasons for a full backup, the most obvious first."""
    base_disk, has_moved = base.disk, host != base.host
    problem = catalog.disk_problem(base.backup_id, disk.target)
    if problem:
        yield f"the last backup of the disk is not good: {problem}"
    if base_disk.size_bytes != disk.size_bytes:
        yield f"the disk was resized from {base_disk.size_bytes} to {disk.size_bytes} bytes"
    if not _is_same(base, disk, guest, host):
        yield f"the disk was replaced: {base_disk.source} before, {disk.source} now"
    if disk.format != QCOW2:
        yield f"a disk of format {disk.format} cannot store a bitmap"
    if base_disk.checkpoint is None:
        yield "the last backup of the disk has no checkpoint"
    elif base_disk.checkpoint not in guest.checkpoints:
        yield f"libvirt on {host} does not know the checkpoint {base_disk.checkpoint}"
    elif base_disk.checkpoint not in disk.bitmaps:
        detail = f" since the guest moved from {base.host} to {host}" if has_moved else ""
        yield f"the disk has no bitmap {base_disk.checkpoint}{detail}"
    elif disk.bitmaps[base_disk.checkpoint] != GOOD:
        state = disk.bitmaps[base_disk.checkpoint]
        yield f"the bitmap {base_disk.checkpoint} of the disk is {state}"
    length = len(catalog.chain(base.backup_id, disk.target))
    if chain == 1:
        yield "increments are disabled (virt:backup:chain)"
    elif length >= chain:
        yield f"the chain has {length} backups, the maximum is {chain}"


def _key_mismatch(before: str | None, now: str | None) -> str | None:
    """Return why an increment cannot depend on a disk with another encryption key."""
    if before == now:
        return None
    states = [
        f"encrypted with the key {key_name}" if key_name else "not encrypted"
        for key_name in (before, now)
    ]
    return f"the last backup of the disk is {states[0]}, this one is {states[1]}"


def _is_same(base: _Base, disk: InspectedDisk, guest: GuestInspection, host: str) -> bool:
    """Whether the disk is the one that was backed up.

    On another host its file may be in another folder, and after a rename of the guest its file may
    have the new name. All disks of a guest have bitmaps of the same names, so if two disks have the
    same file name, the name proves nothing.
    """
    if base.disk.source == disk.source:
        return True
    name = guest.name or base.guest
    suffixes = [_file_suffix(candidate.source, name) for candidate in guest.disks]
    suffix = _file_suffix(disk.source, name)
    may_differ = host != base.host or name != base.guest
    return (
        may_differ
        and _file_suffix(base.disk.source, base.guest) == suffix
        and suffixes.count(suffix) == 1
    )


def _file_suffix(source: str, guest: str) -> str:
    """Return the name of a disk's file without the leading name of the guest."""
    return source.rpartition("/")[2].removeprefix(guest)
