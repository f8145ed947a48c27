"""Reads a backup back and compares it with the digests of what was read of the guest.

What is compared of a disk is its own pieces, through its own file: what it stands on is another
backup's, with digests of its own. So that no byte of an overlay is believed that is not among its
pieces, its file may have nothing beyond them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator

from saltvirt import errors, units
from saltvirt.backuphost import layers, reader
from saltvirt.backuphost.layers import Layers
from saltvirt.backuphost.reader import Reader
from saltvirt.backuphost.target import Target
from saltvirt.backups import record
from saltvirt.backups.marks import Verified
from saltvirt.backups.pieces import ZERO, Piece
from saltvirt.backups.record import BackupDisk, Record
from saltvirt.backups.stock import Stock
from saltvirt.images import tools

VERIFYING = ".verify"
# qemu-img's list of this much of a disk is never too long to take
_MAPPED = 4 * 1024**3
_MOST_CLUSTER = 2 * 1024**2
# exit codes of qemu-img check: what nothing refers to harms nothing
_CORRUPT, _LEAKED = 2, 3
_BLOCK = 1024**2
# words of the system in what a tool says: the file may be as it was
_SYSTEM = (*(os.strerror(one).lower() for one in errno.errorcode), " lock", "timed out")

# (bytes that were compared, bytes in all)
Tell = Callable[[int, int], object]


class Damaged(errors.ImageError):
    """What a backup has is not what was written, whoever reads it, and whenever."""


def backup(target: Target, uuid: str, ident: str, when: str, tell: Tell) -> Verified:
    """What is wrong with a backup, as it is put beside its record.

    A disk is broken only if what it has differs from its digests, its record or the rules of its
    format. Everything else is a failure of a tool, of the storage or of this machine.

    when: it is now. Raises NotFound if the backup was removed, BadAnswer if its record cannot be
    read, Busy while another verifies the guest's, Unsupported without QEMU's tools, and NotNow if a
    disk could not be read: of that disk nothing is put down.
    """
    target.folder.names(uuid)
    with target.using(uuid, ident) as found, _alone(target, uuid):
        stock = target.stock(uuid)
        progress = _Progress(tell, sum(disk.size_bytes for disk in found.parts))
        look = _Look(target, found, stock)
        look.all(progress)
        before = stock.backups[ident].verified
        verified = look.verified(when, before)
        if verified != before and not target.folder.is_read_only:
            target.mark(uuid, ident, verified)
        if look.unread:
            raise reader.NotNow("; ".join(f"{disk}: {why}" for disk, why in look.unread.items()))
    return verified


def _alone(target: Target, uuid: str) -> contextlib.AbstractContextManager[None]:
    """Nobody else reads the guest's back; where nobody can write no two could disagree."""
    if target.folder.is_read_only:
        return contextlib.nullcontext()
    return target.folder.locked(uuid, VERIFYING, what="virt.backup_verify")


class _Look:
    """One verification of a backup. broken: name of a disk to what is wrong with it; "" is the
    definition. unread: name of a disk to why it could not be read."""

    def __init__(self, target: Target, found: Record, stock: Stock) -> None:
        self._target, self._found, self._stock = target, found, stock
        self.broken: dict[str, str] = {}
        self.unread: dict[str, str] = {}

    def all(self, progress: _Progress) -> None:
        """Reads the definition and each disk; what becomes of one hinders no other."""
        self._one("", self._definition)
        for disk in self._found.parts:
            self._one(disk.target, functools.partial(self._disk, disk, progress))
            progress.ends(disk.size_bytes)

    def _one(self, name: str, read: Callable[[], object]) -> None:
        try:
            read()
        except errors.Unsupported:
            raise
        except Damaged as exc:
            self.broken[name] = exc.text
        except errors.VirtError as exc:
            self.unread[name or record.DEFINITION] = exc.text
        except (OSError, ValueError, KeyError) as exc:
            self.unread[name or record.DEFINITION] = errors.OperationFailed(exc).text

    def verified(self, when: str, before: Verified | None) -> Verified:
        """The mark. Of what could not be read it says what was put down before, and it is as old
        as that was: so it is soon read again."""
        if not self.unread:
            return Verified(when, tuple(disk.target for disk in self._found.parts), self.broken)
        was = before or Verified(self._found.when)
        names = {record.DEFINITION: "", **{disk.target: disk.target for disk in self._found.parts}}
        kept = {
            names[one]: was.broken[names[one]]
            for one in self.unread
            if names.get(one) in was.broken
        }
        if not self.broken and kept == was.broken and before is None:
            return was
        return Verified(was.when, was.disks, {**kept, **self.broken})

    def _definition(self) -> None:
        if record.DEFINITION not in self._stock.backups[self._found.ident].lengths:
            raise Damaged(f"{record.DEFINITION} is gone")
        try:
            self._target.definition(self._found)
        except (errors.BadAnswer, UnicodeDecodeError) as exc:
            raise Damaged(errors.BadAnswer(exc).text) from exc

    def _disk(self, disk: BackupDisk, progress: _Progress) -> None:
        unfit = self._stock.unfit(self._found.ident, disk.target)
        if unfit:
            raise Damaged(unfit)
        of = _layers(self._target, self._found, disk)
        _check(of)
        try:
            if disk.backing is not None:
                _nothing_beyond(of, disk, self._target.pieces(self._found, disk))
            _compare(of, self._target.pieces(self._found, disk), progress)
        except errors.BadAnswer as exc:  # of the digests
            raise Damaged(exc.text) from exc


def _layers(target: Target, found: Record, disk: BackupDisk) -> Layers:
    try:
        return layers.of(target, found, disk)
    except errors.BadAnswer as exc:
        raise Damaged(exc.text) from exc
    except errors.ImageError as exc:
        if isinstance(exc.__cause__, OSError):  # the storage has failed, not the file
            raise
        raise Damaged(exc.text) from exc


class _Progress:
    def __init__(self, tell: Tell, total: int) -> None:
        self._tell, self._total, self._before = tell, total, 0

    def at(self, offset_bytes: int) -> None:
        """So far of the disk that is read."""
        self._tell(self._before + offset_bytes, self._total)

    def ends(self, size_bytes: int) -> None:
        """A disk is done."""
        self._before += size_bytes


def _check(of: Layers) -> None:
    """Raises Damaged where QEMU finds that the file contradicts itself."""
    argv = ["check", "--output=json", *of.argv]
    what = f"check {of.paths[0]}"
    try:
        said = _run(argv, what, None, (0, _CORRUPT, _LEAKED))
    except reader.NotNow as exc:
        if not _is_refused(exc.text):
            raise
        _read_whole(of)
        try:
            said = _run(argv, what, None, (0, _CORRUPT, _LEAKED))
        except reader.NotNow as again:
            raise (Damaged(again.text) if again.text == exc.text else again) from exc
    corrupt = json.loads(said).get("corruptions", 0)
    if corrupt:
        raise Damaged(f"qemu-img check finds {units.counted(corrupt, 'error')} in its tables")


def _is_refused(text: str) -> bool:
    """Whether QEMU does not open a file for what is in it, and not for what the system says."""
    words = text.lower()
    return "could not open" in words and not any(one in words for one in _SYSTEM)


def _read_whole(of: Layers) -> None:
    """Raises OSError where the storage fails."""
    for path in of.paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(_BLOCK):
                pass


def _run(
    argv: list[str],
    what: str,
    timeout_s: float | None = tools.TIMEOUT_S,
    good: tuple[int, ...] = (0,),
) -> bytes:
    """What qemu-img says. Raises NotNow."""
    return tools.run(
        ["qemu-img", *argv], what, reader.NotNow, timeout_s=timeout_s, good=good,
        not_now=reader.NotNow,
    )  # fmt: skip


def _compare(of: Layers, pieces: Iterable[Piece], progress: _Progress) -> None:
    """Raises Damaged where a disk first is another than it was."""
    key = of.digests
    with reader.shown(of.argv) as shown:
        for one in pieces:
            try:
                same = _is_same(shown, one, key)
            except reader.Unreadable as exc:
                _read_again(of, one, key, exc)
            if not same:
                raise Damaged(
                    f"the {one.length_bytes} bytes at {one.offset_bytes} are others than were read"
                )
            progress.at(one.end_bytes)


def _read_again(of: Layers, piece: Piece, key: bytes | None, first: reader.Unreadable) -> None:
    """QEMU says the same of storage that fails and of a cluster that cannot be decompressed. Raises
    Damaged if the files can be read to their ends and QEMU fails again, else NotNow."""
    _read_whole(of)
    try:
        with reader.shown(of.argv) as shown:
            _is_same(shown, piece, key)
    except reader.Unreadable as exc:
        raise Damaged(exc.text) from exc
    raise reader.NotNow(f"{first.text}; the second time it could be read") from first


def _is_same(shown: Reader, piece: Piece, key: bytes | None) -> bool:
    if piece.sha256 != ZERO:
        return piece.is_of(shown.read(piece.offset_bytes, piece.length_bytes), key)
    at = piece.offset_bytes
    while at < piece.end_bytes:
        length = min(reader.MOST_BYTES, piece.end_bytes - at)
        data = shown.read(at, length)
        # a comparison in one call: bytes one by one would take seconds
        if data.count(0) != length:
            return False
        at += length
    return True


def _nothing_beyond(of: Layers, disk: BackupDisk, pieces: Iterable[Piece]) -> None:
    """Raises Damaged where an overlay's own file has something that is in none of its pieces.

    A piece that begins or ends within a cluster has all of it in the file.
    """
    cluster = _cluster(of.paths[0])
    covered = _clusters(pieces, cluster)
    have = next(covered, None)
    for begin, end in _own(of, disk.size_bytes):
        at = begin
        while at < end:
            while have is not None and have[1] <= at:
                have = next(covered, None)
            if have is None or have[0] > at:
                raise Damaged(f"it has something at {at} that was not read of the guest")
            at = have[1]


def _clusters(pieces: Iterable[Piece], cluster: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of what pieces have, in whole clusters."""
    for one in pieces:
        yield one.offset_bytes // cluster * cluster, -(-one.end_bytes // cluster) * cluster


def _own(of: Layers, size_bytes: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of what a file itself has, not what it stands on."""
    for begin in range(0, size_bytes, _MAPPED):
        argv = ["map", "--output=json", f"--start-offset={begin}", f"--max-length={_MAPPED}"]
        said = _run([*argv, *of.argv], f"look into {of.paths[0]}", None)
        for one in json.loads(said):
            if one["depth"] == 0 and one.get("present", True):
                yield one["start"], one["start"] + one["length"]


def _cluster(path: str) -> int:
    said = json.loads(_run(["info", "-f", "qcow2", "--output=json", path], f"look into {path}"))
    return min(int(said["cluster-size"]), _MOST_CLUSTER)
