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
from saltvirt.backup.model import record
from saltvirt.backup.model.catalog import Catalog
from saltvirt.backup.model.checksum_blocks import ZERO, ChecksumBlock
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.model.verification import Verification
from saltvirt.backup.target import layers, reader
from saltvirt.backup.target.layers import Layers
from saltvirt.backup.target.reader import Reader
from saltvirt.backup.target.target import BackupTarget
from saltvirt.images import tools

VERIFYING = ".verify"
# qemu-img's list of this much of a disk is never too long to take
_MAP_BYTES = 4 * 1024**3
_MAX_CLUSTER = 2 * 1024**2
# exit codes of qemu-img check: what nothing refers to harms nothing
_CORRUPT, _LEAKED = 2, 3
_BLOCK = 1024**2
# words of the system in what a tool says: the file may be as it was
_SYSTEM = (*(os.strerror(code).lower() for code in errno.errorcode), " lock", "timed out")

# (bytes that were compared, bytes in all)
ProgressCallback = Callable[[int, int], object]


class Damaged(errors.ImageError):
    """What a backup has is not what was written, whoever reads it, and whenever."""


def backup(
    target: BackupTarget, uuid: str, backup_id: str, verified_at: str, report: ProgressCallback
) -> Verification:
    """What is wrong with a backup, as it is put beside its record.

    A disk is broken only if what it has differs from its digests, its record or the rules of its
    format. Everything else is a failure of a tool, of the storage or of this machine.

    verified_at: it is now. Raises NotFound if the backup was removed, BadAnswer if its record
    cannot be
    read, Busy while another verifies the guest's, Unsupported without QEMU's tools, and NotNow if a
    disk could not be read: of that disk nothing is put down.
    """
    target.folder.names(uuid)
    with target.open_backup(uuid, backup_id) as backup_record, _exclusive(target, uuid):
        catalog = target.catalog(uuid)
        progress = _VerifyProgress(report, sum(disk.size_bytes for disk in backup_record.parts))
        check = _BackupCheck(target, backup_record, catalog)
        check.run(progress)
        before = catalog.backups[backup_id].verification
        result = check.result(verified_at, before)
        if result != before and not target.folder.is_read_only:
            target.save_verification(uuid, backup_id, result)
        if check.unread:
            raise reader.TemporaryFailure(
                "; ".join(f"{disk}: {reason}" for disk, reason in check.unread.items())
            )
    return result


def _exclusive(target: BackupTarget, uuid: str) -> contextlib.AbstractContextManager[None]:
    """Nobody else reads the guest's back; where nobody can write no two could disagree."""
    if target.folder.is_read_only:
        return contextlib.nullcontext()
    return target.folder.lock(uuid, VERIFYING, purpose="virt.backup_verify")


class _BackupCheck:
    """One verification of a backup. broken: name of a disk to what is wrong with it; "" is the
    definition. unread: name of a disk to why it could not be read."""

    def __init__(self, target: BackupTarget, backup_record: BackupRecord, catalog: Catalog) -> None:
        self._target, self._record, self._stock = target, backup_record, catalog
        self.broken: dict[str, str] = {}
        self.unread: dict[str, str] = {}

    def run(self, progress: _VerifyProgress) -> None:
        """Reads the definition and each disk; what becomes of one hinders no other."""
        self._check_part("", self._definition)
        for disk in self._record.parts:
            self._check_part(disk.target, functools.partial(self._disk, disk, progress))
            progress.finish_disk(disk.size_bytes)

    def _check_part(self, name: str, read: Callable[[], object]) -> None:
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

    def result(self, verified_at: str, before: Verification | None) -> Verification:
        """The mark. Of what could not be read it says what was put down before, and it is as old
        as that was: so it is soon read again."""
        if not self.unread:
            return Verification(
                verified_at, tuple(disk.target for disk in self._record.parts), self.broken
            )
        previous = before or Verification(self._record.when)
        names = {record.DEFINITION: "", **{disk.target: disk.target for disk in self._record.parts}}
        carried = {
            names[name]: previous.broken[names[name]]
            for name in self.unread
            if names.get(name) in previous.broken
        }
        if not self.broken and carried == previous.broken and before is None:
            return previous
        return Verification(previous.when, previous.disks, {**carried, **self.broken})

    def _definition(self) -> None:
        if record.DEFINITION not in self._stock.backups[self._record.ident].lengths:
            raise Damaged(f"{record.DEFINITION} is gone")
        try:
            self._target.definition(self._record)
        except (errors.BadAnswer, UnicodeDecodeError) as exc:
            raise Damaged(errors.BadAnswer(exc).text) from exc

    def _disk(self, disk: BackupDiskRecord, progress: _VerifyProgress) -> None:
        problem = self._stock.file_problem(self._record.ident, disk.target)
        if problem:
            raise Damaged(problem)
        disk_layers = _layers(self._target, self._record, disk)
        _check(disk_layers)
        try:
            if disk.backing is not None:
                _refuse_extra_data(
                    disk_layers, disk, self._target.read_checksums(self._record, disk)
                )
            _compare(disk_layers, self._target.read_checksums(self._record, disk), progress)
        except errors.BadAnswer as exc:  # of the digests
            raise Damaged(exc.text) from exc


def _layers(target: BackupTarget, backup_record: BackupRecord, disk: BackupDiskRecord) -> Layers:
    try:
        return layers.load(target, backup_record, disk)
    except errors.BadAnswer as exc:
        raise Damaged(exc.text) from exc
    except errors.ImageError as exc:
        if isinstance(exc.__cause__, OSError):  # the storage has failed, not the file
            raise
        raise Damaged(exc.text) from exc


class _VerifyProgress:
    def __init__(self, report: ProgressCallback, total: int) -> None:
        self._report, self._total, self._before = report, total, 0

    def update(self, offset_bytes: int) -> None:
        """So far of the disk that is read."""
        self._report(self._before + offset_bytes, self._total)

    def finish_disk(self, size_bytes: int) -> None:
        """A disk is done."""
        self._before += size_bytes


def _check(disk_layers: Layers) -> None:
    """Raises Damaged where QEMU finds that the file contradicts itself."""
    argv = ["check", "--output=json", *disk_layers.argv]
    action = f"check {disk_layers.paths[0]}"
    try:
        output = _run(argv, action, None, (0, _CORRUPT, _LEAKED))
    except reader.TemporaryFailure as exc:
        if not _is_refused(exc.text):
            raise
        _read_files(disk_layers)
        try:
            output = _run(argv, action, None, (0, _CORRUPT, _LEAKED))
        except reader.TemporaryFailure as second:
            raise (Damaged(second.text) if second.text == exc.text else second) from exc
    corrupt = json.loads(output).get("corruptions", 0)
    if corrupt:
        raise Damaged(f"qemu-img check finds {units.pluralize(corrupt, 'error')} in its tables")


def _is_refused(text: str) -> bool:
    """Whether QEMU does not open a file for what is in it, and not for what the system says."""
    message = text.lower()
    return "could not open" in message and not any(phrase in message for phrase in _SYSTEM)


def _read_files(disk_layers: Layers) -> None:
    """Raises OSError where the storage fails."""
    for path in disk_layers.paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(_BLOCK):
                pass


def _run(
    argv: list[str],
    action: str,
    timeout_s: float | None = tools.TIMEOUT_S,
    good: tuple[int, ...] = (0,),
) -> bytes:
    """What qemu-img says. Raises NotNow."""
    return tools.run(
        ["qemu-img", *argv], action, reader.TemporaryFailure, timeout_s=timeout_s, ok_codes=good,
        transient_error=reader.TemporaryFailure,
    )  # fmt: skip


def _compare(
    disk_layers: Layers, blocks: Iterable[ChecksumBlock], progress: _VerifyProgress
) -> None:
    """Raises Damaged where a disk first is another than it was."""
    key = disk_layers.checksum_key
    with reader.open_image(disk_layers.argv) as image:
        for block in blocks:
            try:
                same = _is_same(image, block, key)
            except reader.Unreadable as exc:
                _retry_block(disk_layers, block, key, exc)
            if not same:
                raise Damaged(
                    f"the {block.length_bytes} bytes at {block.offset_bytes} are others than were "
                    f"read"
                )
            progress.update(block.end_bytes)


def _retry_block(
    disk_layers: Layers, block: ChecksumBlock, key: bytes | None, first: reader.Unreadable
) -> None:
    """QEMU says the same of storage that fails and of a cluster that cannot be decompressed. Raises
    Damaged if the files can be read to their ends and QEMU fails again, else NotNow."""
    _read_files(disk_layers)
    try:
        with reader.open_image(disk_layers.argv) as image:
            _is_same(image, block, key)
    except reader.Unreadable as exc:
        raise Damaged(exc.text) from exc
    raise reader.TemporaryFailure(f"{first.text}; the second time it could be read") from first


def _is_same(image: Reader, block: ChecksumBlock, key: bytes | None) -> bool:
    if block.sha256 != ZERO:
        return block.matches(image.read(block.offset_bytes, block.length_bytes), key)
    offset = block.offset_bytes
    while offset < block.end_bytes:
        length = min(reader.MAX_BYTES, block.end_bytes - offset)
        data = image.read(offset, length)
        # a comparison in one call: bytes one by one would take seconds
        if data.count(0) != length:
            return False
        offset += length
    return True


def _refuse_extra_data(
    disk_layers: Layers, disk: BackupDiskRecord, blocks: Iterable[ChecksumBlock]
) -> None:
    """Raises Damaged where an overlay's own file has something that is in none of its pieces.

    A piece that begins or ends within a cluster has all of it in the file.
    """
    cluster = _cluster(disk_layers.paths[0])
    covered = _clusters(blocks, cluster)
    extent = next(covered, None)
    for begin, end in _allocated(disk_layers, disk.size_bytes):
        offset = begin
        while offset < end:
            while extent is not None and extent[1] <= offset:
                extent = next(covered, None)
            if extent is None or extent[0] > offset:
                raise Damaged(f"it has something at {offset} that was not read of the guest")
            offset = extent[1]


def _clusters(blocks: Iterable[ChecksumBlock], cluster: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of what pieces have, in whole clusters."""
    for block in blocks:
        yield block.offset_bytes // cluster * cluster, -(-block.end_bytes // cluster) * cluster


def _allocated(disk_layers: Layers, size_bytes: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of what a file itself has, not what it stands on."""
    for begin in range(0, size_bytes, _MAP_BYTES):
        argv = ["map", "--output=json", f"--start-offset={begin}", f"--max-length={_MAP_BYTES}"]
        output = _run([*argv, *disk_layers.argv], f"look into {disk_layers.paths[0]}", None)
        for extent in json.loads(output):
            if extent["depth"] == 0 and extent.get("present", True):
                yield extent["start"], extent["start"] + extent["length"]


def _cluster(path: str) -> int:
    output = json.loads(_run(["info", "-f", "qcow2", "--output=json", path], f"look into {path}"))
    return min(int(output["cluster-size"]), _MAX_CLUSTER)
