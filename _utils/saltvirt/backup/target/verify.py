"""Verify backups: read them and compare the data with the digests of what was read from the guest.

Each backup is compared with its own blocks, through its own files; the backing files belong to
other backups with digests of their own. The file of an increment may contain only data of its
blocks.
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
from saltvirt.system import tools

VERIFYING = ".verify"
# part of a disk for which qemu-img's list of extents has an acceptable size
_MAP_BYTES = 4 * 1024**3
_MAX_CLUSTER = 2 * 1024**2
# exit codes of qemu-img check; leaked clusters are harmless
_CORRUPT, _LEAKED = 2, 3
_BLOCK = 1024**2
# phrases of system errors in the output of a tool, which do not indicate a damaged file
_SYSTEM = (*(os.strerror(code).lower() for code in errno.errorcode), " lock", "timed out")

# (bytes compared, total bytes)
ProgressCallback = Callable[[int, int], object]


class Damaged(errors.ImageError):
    """The backup differs from what was written, permanently."""


def backup(
    target: BackupTarget, uuid: str, backup_id: str, verified_at: str, report: ProgressCallback
) -> Verification:
    """Verify a backup and store the result beside its record.

    A disk is broken only if its content differs from its digests, its record or the rules of its
    format. All other errors are failures of a tool, of the storage or of this machine.

    verified_at: the present time. Raises NotFound if the backup was removed, BadAnswer if its
    record cannot be read, Busy while another process verifies a backup of this guest, Unsupported
    without QEMU's tools, and TemporaryFailure if a disk could not be read, for which no result is
    stored.
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
    """Prevent concurrent verifications of a guest; not needed if nothing can be stored."""
    if target.folder.is_read_only:
        return contextlib.nullcontext()
    return target.folder.lock(uuid, VERIFYING, purpose="virt.backup_verify")


class _BackupCheck:
    """Verification of one backup. broken: disk to its problem; the definition has the name "".
    unread: disk to the reason why it could not be read."""

    def __init__(self, target: BackupTarget, backup_record: BackupRecord, catalog: Catalog) -> None:
        self._target, self._record, self._catalog = target, backup_record, catalog
        self.broken: dict[str, str] = {}
        self.unread: dict[str, str] = {}

    def run(self, progress: _VerifyProgress) -> None:
        """Check the definition and each disk, independently of each other."""
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
        """Return the result. Disks that could not be read keep their previous result with its time,
        so that they are verified again soon."""
        if not self.unread:
            return Verification(
                verified_at, tuple(disk.target for disk in self._record.parts), self.broken
            )
        previous = before or Verification(self._record.taken_at)
        names = {record.DEFINITION: "", **{disk.target: disk.target for disk in self._record.parts}}
        carried = {
            names[name]: previous.broken_disks[names[name]]
            for name in self.unread
            if names.get(name) in previous.broken_disks
        }
        if not self.broken and carried == previous.broken_disks and before is None:
            return previous
        return Verification(previous.verified_at, previous.disks, {**carried, **self.broken})

    def _definition(self) -> None:
        if record.DEFINITION not in self._catalog.backups[self._record.backup_id].lengths:
            raise Damaged(f"{record.DEFINITION} is missing")
        try:
            self._target.definition(self._record)
        except (errors.BadAnswer, UnicodeDecodeError) as exc:
            raise Damaged(errors.BadAnswer(exc).text) from exc

    def _disk(self, disk: BackupDiskRecord, progress: _VerifyProgress) -> None:
        problem = self._catalog.file_problem(self._record.backup_id, disk.target)
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
        except errors.BadAnswer as exc:  # raised for the checksum file
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
        """Report the offset in the present disk."""
        self._report(self._before + offset_bytes, self._total)

    def finish_disk(self, size_bytes: int) -> None:
        """Count a finished disk."""
        self._before += size_bytes


def _check(disk_layers: Layers) -> None:
    """Raise Damaged if QEMU finds errors in the tables of the file."""
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
    """Whether QEMU refuses to open a file because of its content, and not because of a system
    error."""
    message = text.lower()
    return "could not open" in message and not any(phrase in message for phrase in _SYSTEM)


def _read_files(disk_layers: Layers) -> None:
    """Read all files to their ends. Raises OSError if the storage fails."""
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
    """Return the output of qemu-img. Raises TemporaryFailure."""
    return tools.run(
        ["qemu-img", *argv], action, reader.TemporaryFailure, timeout_s=timeout_s, ok_codes=good,
        transient_error=reader.TemporaryFailure,
    )  # fmt: skip


def _compare(
    disk_layers: Layers, blocks: Iterable[ChecksumBlock], progress: _VerifyProgress
) -> None:
    """Raise Damaged at the first block that differs."""
    key = disk_layers.checksum_key
    with reader.open_image(disk_layers.argv) as image:
        for block in blocks:
            try:
                same = _is_same(image, block, key)
            except reader.Unreadable as exc:
                _retry_block(disk_layers, block, key, exc)
            if not same:
                raise Damaged(
                    f"the {block.length_bytes} bytes at offset {block.offset_bytes} differ from "
                    "what was backed up"
                )
            progress.update(block.end_bytes)


def _retry_block(
    disk_layers: Layers, block: ChecksumBlock, key: bytes | None, first: reader.Unreadable
) -> None:
    """Distinguish a failing storage from a damaged cluster, for which QEMU reports the same error.

    Raises Damaged if the files can be read to their ends and QEMU fails again, else
    TemporaryFailure.
    """
    _read_files(disk_layers)
    try:
        with reader.open_image(disk_layers.argv) as image:
            _is_same(image, block, key)
    except reader.Unreadable as exc:
        raise Damaged(exc.text) from exc
    raise reader.TemporaryFailure(f"{first.text}; the second attempt succeeded") from first


def _is_same(image: Reader, block: ChecksumBlock, key: bytes | None) -> bool:
    if block.sha256 != ZERO:
        return block.matches(image.read(block.offset_bytes, block.length_bytes), key)
    offset = block.offset_bytes
    while offset < block.end_bytes:
        length = min(reader.MAX_BYTES, block.end_bytes - offset)
        data = image.read(offset, length)
        # one call for all bytes, for speed
        if data.count(0) != length:
            return False
        offset += length
    return True


def _refuse_extra_data(
    disk_layers: Layers, disk: BackupDiskRecord, blocks: Iterable[ChecksumBlock]
) -> None:
    """Raise Damaged if the file of an increment contains data outside of its blocks. Blocks are
    extended to whole clusters."""
    cluster = _cluster(disk_layers.paths[0])
    covered = _clusters(blocks, cluster)
    extent = next(covered, None)
    for begin, end in _allocated(disk_layers, disk.size_bytes):
        offset = begin
        while offset < end:
            while extent is not None and extent[1] <= offset:
                extent = next(covered, None)
            if extent is None or extent[0] > offset:
                raise Damaged(
                    f"the file has data at offset {offset} that was not read from the guest"
                )
            offset = extent[1]


def _clusters(blocks: Iterable[ChecksumBlock], cluster: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the blocks, extended to whole clusters."""
    for block in blocks:
        yield block.offset_bytes // cluster * cluster, -(-block.end_bytes // cluster) * cluster


def _allocated(disk_layers: Layers, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of what the file itself contains, without its backing files."""
    for begin in range(0, size_bytes, _MAP_BYTES):
        argv = ["map", "--output=json", f"--start-offset={begin}", f"--max-length={_MAP_BYTES}"]
        output = _run([*argv, *disk_layers.argv], f"inspect {disk_layers.paths[0]}", None)
        for extent in json.loads(output):
            if extent["depth"] == 0 and extent.get("present", True):
                yield extent["start"], extent["start"] + extent["length"]


def _cluster(path: str) -> int:
    output = json.loads(_run(["info", "-f", "qcow2", "--output=json", path], f"inspect {path}"))
    return min(int(output["cluster-size"]), _MAX_CLUSTER)
