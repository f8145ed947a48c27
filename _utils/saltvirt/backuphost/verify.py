"""Reads a backup back and compares it with the digests of what was read of the guest.

What is compared of a disk is its own pieces, through its own file: what it stands on is another
backup's, with digests of its own. So that no byte of an overlay is believed that is not among its
pieces, its file may have nothing beyond them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from saltvirt import errors
from saltvirt.backuphost import layers, reader
from saltvirt.backuphost.layers import Layers
from saltvirt.backuphost.reader import Reader
from saltvirt.backuphost.target import Target
from saltvirt.backups.marks import Verified
from saltvirt.backups.pieces import ZERO, Piece
from saltvirt.backups.record import BackupDisk, Record
from saltvirt.backups.stock import Stock
from saltvirt.images import tools

VERIFYING = ".verify"
# qemu-img's list of this much of a disk is never too long to take
_MAPPED = 4 * 1024**3
_MOST_CLUSTER = 2 * 1024**2
_LEAKED = 3  # what nothing refers to harms nothing

# (bytes that were compared, bytes in all)
Tell = Callable[[int, int], object]


def backup(target: Target, uuid: str, ident: str, when: str, tell: Tell) -> Verified:
    """What is wrong with a backup, as it is put beside its record.

    when: it is now. Raises NotFound where it is gone, BadAnswer where its record cannot be read,
    Busy while another verifies the guest's, Unsupported without QEMU's tools, NotNow where they are
    killed or too slow: then nothing is put down.
    """
    target.folder.names(uuid)
    with target.using(uuid, ident) as found, target.folder.locked(uuid, VERIFYING):
        stock = target.stock(uuid)
        progress = _Progress(tell, sum(disk.size_bytes for disk in found.disks))
        broken = dict(_broken(target, found, stock, progress))
        names = tuple(disk.target for disk in found.disks)
        verified = Verified(when, names, broken)
        target.mark(uuid, ident, verified)
    return verified


class _Progress:
    def __init__(self, tell: Tell, total: int) -> None:
        self._tell, self._total, self._before = tell, total, 0

    def at(self, offset_bytes: int) -> None:
        """So far of the disk that is read."""
        self._tell(self._before + offset_bytes, self._total)

    def ends(self, size_bytes: int) -> None:
        """A disk is done."""
        self._before += size_bytes


def _broken(
    target: Target, found: Record, stock: Stock, progress: _Progress
) -> Iterator[tuple[str, str]]:
    """(name of a disk, what is wrong with it); "" is the definition."""
    try:
        target.definition(found)
    except (errors.BadAnswer, errors.NotFound) as exc:
        yield "", exc.text
    for disk in found.disks:
        wrong = stock.unfit(found.ident, disk.target) or _wrong(target, found, disk, progress)
        if wrong:
            yield disk.target, wrong
        progress.ends(disk.size_bytes)


def _wrong(target: Target, found: Record, disk: BackupDisk, progress: _Progress) -> str | None:
    try:
        of = layers.of(target, found, disk)
        _check(of)
        if disk.backing is not None:
            _nothing_beyond(of, disk, target.pieces(found, disk))
        with reader.shown(of.argv) as shown:
            return _compared(shown, target.pieces(found, disk), of.digests, progress)
    except errors.Unsupported:
        raise
    except (errors.ImageError, errors.BadAnswer, errors.NotFound, errors.OperationFailed) as exc:
        return exc.text


def _check(of: Layers) -> None:
    _run(["check", "-q", *of.argv], f"check {of.paths[0]}", None, (0, _LEAKED))


def _run(
    argv: list[str],
    what: str,
    timeout_s: float | None = tools.TIMEOUT_S,
    good: tuple[int, ...] = (0,),
) -> bytes:
    """What qemu-img says. Raises ImageError, NotNow."""
    return tools.run(
        ["qemu-img", *argv], what, errors.ImageError, timeout_s=timeout_s, good=good,
        not_now=reader.NotNow,
    )  # fmt: skip


def _compared(
    shown: Reader, pieces: Iterable[Piece], key: bytes | None, progress: _Progress
) -> str | None:
    """Where a disk first is another than it was."""
    for one in pieces:
        if not _is_same(shown, one, key):
            return f"the {one.length_bytes} bytes at {one.offset_bytes} are others than were read"
        progress.at(one.end_bytes)
    return None


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
    """Raises ImageError where an overlay's own file has something that is in none of its pieces.

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
                raise errors.ImageError(f"it has something at {at} that was not read of the guest")
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
