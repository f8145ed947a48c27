"""Which disk of a guest can be taken as an increment, and which has to be read whole, and why.

An increment is what a bitmap in the disk's own file says has changed since the backup that it is
named for. It is good where nothing can have been written past that bitmap: so whatever is not as
that backup left it makes the disk a whole one, and no other disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt import names
from saltvirt.backups import ident, record
from saltvirt.backups.record import QCOW2, BackupDisk
from saltvirt.backups.stock import Stock

GOOD, INCONSISTENT, DISABLED = "good", "inconsistent", "disabled"
# as many files are opened to read the last of a chain
CHAIN = 30
PREFIX = names.CHECKPOINT
# a checkpoint of ours that no target knows may be another master's for so long
ABANDONED_DAYS = 30
# why a CD or floppy drive is in no backup
DRIVE = "a drive for "


@dataclass(frozen=True)
class DiskSeen:
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
class GuestSeen:
    """The guest as it is now.

    host: where. checkpoints: the names of those that libvirt there knows. name: the guest's.
    """

    uuid: str
    host: str
    disks: tuple[DiskSeen, ...]
    checkpoints: Collection[str] = ()
    name: str = ""


@dataclass(frozen=True)
class DiskPlan:
    """How a disk is to be taken.

    parent: the backup that the increment stands on, with since, libvirt's checkpoint; both None:
    it is taken whole, and reason says why.
    """

    target: str
    parent: str | None = None
    since: str | None = None
    reason: str | None = None

    @property
    def is_whole(self) -> bool:
        """Is all of it read?"""
        return self.parent is None


@dataclass(frozen=True)
class _Base:
    """A disk at its target that an increment would stand on. host, guest: where the guest was then,
    and what it was called."""

    ident: str
    host: str
    guest: str
    disk: BackupDisk


def plan(
    guest: GuestSeen,
    stock: Stock,
    chain: int = CHAIN,
    whole: bool = False,
    key: str | None = None,
) -> list[DiskPlan]:
    """How each disk of the guest is to be taken, in the order of the guest's.

    stock: what this target has of it: increments are a target's own. chain: so many backups at
    most stand on each other, the whole one among them. whole: all are asked for so. key: with
    which they are to be encrypted, as a record has it.
    """
    return [_disk(one, guest, stock, chain, whole, key) for one in guest.disks]


def checkpoint(ident: str) -> str:
    """The name of the checkpoint that is made with a backup."""
    return f"{PREFIX}{ident}"


def needed(stock: Stock) -> set[str]:
    """The checkpoints from which the next increments at this target begin."""
    last = stock.last.record if stock.last else None
    return {disk.checkpoint for disk in last.disks if disk.checkpoint} if last else set()


def superseded(checkpoints: Iterable[str], stock: Stock) -> set[str]:
    """Of a guest's checkpoints those that backups at this target made, and from which none goes on.
    Others may be another master's, or of a target that nobody asks: they are not for us to remove.
    """
    made = {disk.checkpoint for record in stock.records for disk in record.disks}
    return {*checkpoints} & {one for one in made if one} - needed(stock)


def abandoned(checkpoints: Iterable[str], today: str) -> set[str]:
    """Of the checkpoints that no target knows those of ours that are so old that nobody goes on
    from them. today: as a record has it."""
    now = record.moment(today)
    found = {one: ident.moment(one.removeprefix(PREFIX)) for one in checkpoints if is_ours(one)}
    return {one for one, at in found.items() if at and (now - at).days >= ABANDONED_DAYS}


def is_ours(checkpoint: str) -> bool:
    """Whether a backup made it."""
    return checkpoint.startswith(PREFIX)


def _disk(
    disk: DiskSeen, guest: GuestSeen, stock: Stock, chain: int, whole: bool, key: str | None
) -> DiskPlan:
    base, reason = _base(disk, stock)
    if whole:
        base, reason = None, "it was asked for"
    if base is not None:
        reason = _sealed(base.disk.key, key)
        reason = reason or next(_reasons(disk, guest, stock, base, chain), None)
    if base is None or reason is not None:
        return DiskPlan(disk.target, reason=reason)
    return DiskPlan(disk.target, parent=base.ident, since=base.disk.checkpoint)


def _base(disk: DiskSeen, stock: Stock) -> tuple[_Base | None, str | None]:
    """What an increment would stand on, or why there is nothing."""
    last = stock.last
    if last is None:
        return None, "the first backup of the guest at this target"
    if last.record is None:
        return None, f"the last backup cannot be read: {last.trouble or 'it has no record'}"
    taken = last.record.disk(disk.target)
    if taken is None:
        return None, f"the disk is not in the last backup, {last.ident}"
    return _Base(last.ident, last.record.host, last.record.guest, taken), None


def _reasons(
    disk: DiskSeen, guest: GuestSeen, stock: Stock, base: _Base, chain: int
) -> Iterator[str]:
    """Why the disk has to be read whole, the plainest first."""
    taken, moved = base.disk, guest.host != base.host
    wrong = stock.wrong_disk(base.ident, disk.target)
    if wrong:
        yield f"the last backup of it is not good: {wrong}"
    if taken.size_bytes != disk.size_bytes:
        yield f"it was resized from {taken.size_bytes} to {disk.size_bytes} bytes"
    if not _is_same(base, disk, guest):
        yield f"it was replaced: it was {taken.source}, it is {disk.source}"
    if disk.format != QCOW2:
        yield f"a disk of format {disk.format} keeps no record of what was written"
    if taken.checkpoint is None:
        yield "the last backup of it made no checkpoint"
    elif taken.checkpoint not in guest.checkpoints:
        yield f"libvirt on {guest.host} does not know the checkpoint {taken.checkpoint}"
    elif taken.checkpoint not in disk.bitmaps:
        how = f" since the guest moved from {base.host} to {guest.host}" if moved else ""
        yield f"its file has no bitmap {taken.checkpoint}{how}"
    elif disk.bitmaps[taken.checkpoint] != GOOD:
        state = disk.bitmaps[taken.checkpoint]
        yield f"the bitmap {taken.checkpoint} in its file is {state}"
    length = len(stock.chain(base.ident, disk.target))
    if chain == 1:
        yield "chains of increments are switched off"
    elif length >= chain:
        yield f"{length} backups stand on each other, at most {chain} may"


def _sealed(before: str | None, now: str | None) -> str | None:
    """Why it cannot stand on what was encrypted otherwise."""
    if before == now:
        return None
    words = [f"encrypted by the key {one}" if one else "not encrypted" for one in (before, now)]
    return f"the last backup of it is {words[0]}, this one is {words[1]}"


def _is_same(base: _Base, disk: DiskSeen, guest: GuestSeen) -> bool:
    """Is it the disk that was taken? On another host it may lie in another folder, and of a guest
    that was renamed its file may have the new name.

    All disks of a guest have bitmaps of the same names: so a name that two of them share there
    proves nothing.
    """
    if base.disk.source == disk.source:
        return True
    name = guest.name or base.guest
    ends = [_end(one.source, name) for one in guest.disks]
    end = _end(disk.source, name)
    other = guest.host != base.host or name != base.guest
    return other and _end(base.disk.source, base.guest) == end and ends.count(end) == 1


def _end(source: str, guest: str) -> str:
    """The name of a disk's file, without the guest's at its beginning."""
    return source.rpartition("/")[2].removeprefix(guest)
