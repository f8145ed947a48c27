"""Read a guest's disks from its host and write them as qcow2 files with checksum blocks.

This is a program of its own. It runs with the distribution's Python, which has the binding of
libnbd. It reads its job as JSON from standard input, and writes progress and result as lines of
JSON to standard output.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors
from saltvirt.backup.model import checksum_blocks, record
from saltvirt.backup.target import exports, keyfile, layers
from saltvirt.backup.target.exports import DATA, ZEROS, Extent, NbdServer
from saltvirt.backup.target.keyfile import Key
from saltvirt.schema import Message
from saltvirt.system import atomic_file, detached, paths, private_folder, tools
from saltvirt.units import human_bytes

# size of a request and of a checksum block; readers of the digests keep one block in memory
MIB = 1024**2
BLOCK_BYTES = MIB
READERS = 4
_AHEAD = 4 * READERS
_REPORT_S = 0.5
_BEGINS_S, _ENDS_S = 20, 600
# reserved for the file system and the tables of the qcow2
RESERVED_BYTES = 64 * 1024**2
_ZERO_BLOCK = bytes(BLOCK_BYTES)
# a compressed qcow2 is written in whole clusters
_SECTOR, CLUSTER_BYTES = 512, 64 * 1024
# timeout for the host, and the part of it that applies to the storage of the target
SILENT_S, _STORAGE = 300, 0.9
RUN, FOLDERS = f"{paths.RUN}/backups", "pull-"

Watch = Callable[[int], object]
# a random key of 256 bits needs no slow key derivation for each file of a chain
_QUICK = "encrypt.iter-time=10"
# QEMU measures the duration of the key derivation in CPU time, which can be zero on a busy machine;
# it then fails before it creates the file
_BUSY, _TRIES = "Unable to get accurate CPU usage", 20


@dataclass(frozen=True)
class PulledDisk(Message):
    """A disk to read.

    target: libvirt's name. export: name of the NBD export. contexts: bitmaps; none: read the whole
    disk. backing, backing_format: backing file, relative to its folder. layers: number of files in
    its chain. stored_bytes: size of its last full backup at the target; None: there is none. port:
    of its export; None: that of the job.
    """

    target: str
    export: str
    size_bytes: int
    contexts: tuple[str, ...] = ()
    backing: str | None = None
    backing_format: str | None = None
    layers: int = 1
    stored_bytes: int | None = None
    port: int | None = None


@dataclass(frozen=True)
class TransferSize:
    """Expected size of a disk's transfer.

    data_bytes: as the host reports it now. max_bytes: limit; a running guest may increase
    data_bytes, because QEMU copies whole clusters and reports them as data. stored_bytes: expected
    growth at the target; None: unknown.
    """

    data_bytes: int
    max_bytes: int
    stored_bytes: int | None


@dataclass(frozen=True)
class PullJob(Message):
    """The job.

    folder: where to create the files. bandwidth_mib_s: limit; None: no limit. key: encryption key.
    silent_s: timeout of the host. compress: type of the compression; None: do not compress.
    """

    folder: str
    host: str
    port: int
    certificates: str
    disks: tuple[PulledDisk, ...]
    bandwidth_mib_s: int | None = None
    key: Key | None = None
    silent_s: int = SILENT_S
    compress: str | None = None

    def compression_of(self, disk: PulledDisk) -> str | None:
        """Return the compression type for a disk; None if its size is not a multiple of the cluster
        size."""
        return None if disk.size_bytes % CLUSTER_BYTES else self.compress

    @property
    def server(self) -> NbdServer:
        """The server of the exports."""
        return NbdServer(self.host, self.port, self.certificates)


@dataclass(frozen=True)
class WrittenDisk(Message):
    """A disk that was written. moved_bytes: bytes read from the host."""

    target: str
    checksums_sha256: str
    stored_bytes: int
    moved_bytes: int


@dataclass
class _PullProgress:
    """total_bytes: to read. max_bytes: limit. report: called regularly with a dict.
    bandwidth_mib_s: delay reads to this rate. folder: check its free space. watch: see `pull`."""

    total_bytes: int
    report: Callable[[dict[str, Any]], None]
    bandwidth_mib_s: int | None = None
    folder: str = ""
    watch: Watch = lambda _limit_s: None
    silent_s: int = SILENT_S
    max_bytes: int | None = None
    done_bytes: int = 0
    reported_s: float = 0
    started_s: float | None = None

    def add(self, length: int) -> None:
        """Count bytes that were read."""
        now = time.monotonic()
        if self.started_s is None:
            self.started_s = now
        self.done_bytes += length
        if self.done_bytes > (self.total_bytes if self.max_bytes is None else self.max_bytes):
            raise errors.OperationFailed("the host sends more data than it reported")
        self.total_bytes = max(self.total_bytes, self.done_bytes)
        self.watch(self.silent_s)
        if self.bandwidth_mib_s:
            early = self.started_s + self.done_bytes / (self.bandwidth_mib_s * MIB) - now
            if early > 0:
                time.sleep(early)
                now += early
        if now - self.reported_s > _REPORT_S:
            self.reported_s = now
            if self.folder:
                _require_space(self.folder, 0, self.done_bytes)
            self.report({"done_bytes": self.done_bytes, "total_bytes": self.total_bytes})


def pull(job: PullJob, report: Callable[[dict[str, Any]], None], watch: Watch) -> list[WrittenDisk]:
    """Read all disks, one after the other.

    watch: called with the number of seconds after which this process has to be terminated unless it
    calls watch again, because reads from a host have no timeout; 0: no limit. Raises VirtError.
    """
    sizes = [_measure(job, disk, watch) for disk in job.disks]
    _require_space(job.folder, sum(size.stored_bytes or 0 for size in sizes))
    progress = _PullProgress(
        sum(size.data_bytes for size in sizes), report, job.bandwidth_mib_s, job.folder, watch,
        job.silent_s, sum(size.max_bytes for size in sizes),
    )  # fmt: skip
    # keep a connection open: the export ends without one, also while a file is checked here
    with _connect_source(job.server, job.disks[0]):
        return [_pull_disk(job, disk, progress) for disk in job.disks]


def _measure(job: PullJob, disk: PulledDisk, watch: Watch) -> TransferSize:
    """Measure how much data of a disk has to be read."""
    watch(job.silent_s)
    with _connect_source(job.server, disk) as source:
        if source.get_size() != disk.size_bytes:
            raise errors.OperationFailed(
                f"{disk.target} now has {source.get_size()} bytes instead of {disk.size_bytes}"
            )
        data = max_bytes = 0
        for extent in _extents_to_read(job, source, disk, watch):
            data += extent.length if extent.kind == DATA else 0
            max_bytes += _round_up(extent.end, CLUSTER_BYTES) - _round_down(
                extent.offset, CLUSTER_BYTES
            )
    return TransferSize(data, min(max_bytes, disk.size_bytes), _expected_bytes(job, disk, data))


def _expected_bytes(job: PullJob, disk: PulledDisk, data: int) -> int | None:
    """Return the expected growth at the target for this amount of data; None: unknown.

    For a block device the host reports all as data, and zeros are found only when it is read. The
    size after compression is not known either. In these cases the last full backup counts.
    """
    if job.compression_of(disk) or (data == disk.size_bytes and not disk.contexts):
        return None if disk.stored_bytes is None else min(data, disk.stored_bytes)
    return data


def _extents_to_read(job: PullJob, source: Any, disk: PulledDisk, watch: Watch) -> Iterator[Extent]:
    """Yield the extents to read: whole clusters for a compressed disk, else whole sectors. Behind
    the end of a file that ends within a sector, the host reports zeros."""
    extents = exports.extents(source, disk.size_bytes, disk.contexts, lambda: watch(job.silent_s))
    return _align(extents, CLUSTER_BYTES if job.compression_of(disk) else _SECTOR)


def _require_space(folder: str, needed_bytes: int, done: int = 0) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed_bytes + RESERVED_BYTES:
        reason = f"{human_bytes(needed_bytes)} are needed"
        if done:
            reason = f"after {human_bytes(done)} were read, and more data follows"
        raise errors.OperationFailed(f"the target has {human_bytes(free)} free, {reason}")


@contextlib.contextmanager
def _connect_source(server: NbdServer, disk: PulledDisk) -> Iterator[Any]:
    disk_server = server if disk.port is None else replace(server, port=disk.port)
    source = exports.connect(disk_server, disk.export, disk.contexts)
    try:
        yield source
    finally:
        with contextlib.suppress(exports.nbd.Error):
            source.shutdown()


def _pull_disk(job: PullJob, disk: PulledDisk, progress: _PullProgress) -> WrittenDisk:
    path = os.path.join(job.folder, record.disk_file(disk.target))
    key = job.key
    progress.watch(0)
    compressed = job.compression_of(disk)
    _create(path, disk, key, compressed)
    image_args = layers.image_arguments(path, disk.layers, key)
    digest = hashlib.sha256()
    with open(os.path.join(job.folder, record.checksum_file(disk.target)), "wb") as checksums:
        writing = layers.compress_arguments(path) if compressed else image_args
        with _serve(path, writing) as sinks, contextlib.ExitStack() as stack:
            sources = [
                stack.enter_context(_connect_source(job.server, disk)) for _ in range(READERS)
            ]
            progress.watch(job.silent_s)
            digests = key.checksum_key() if key else None
            copy = _DiskCopy(sources, sinks, disk.backing is not None, digests)
            moved = 0
            stack.enter_context(_storage_watchdog(copy, job.silent_s))
            for block, read in copy.copy_all(
                _extents_to_read(job, sources[0], disk, progress.watch)
            ):
                checksums.write(block.line)
                digest.update(block.line)
                moved += read
                progress.add(read)
            progress.watch(0)  # the host is not involved in the rest
            sinks[0].flush()  # for all connections, because they have one server
        checksums.flush()
        os.fsync(checksums.fileno())
    tools.run(["qemu-img", "check", "-q", *image_args], f"check {path}", timeout_s=None)
    atomic_file.sync(path)
    return WrittenDisk(disk.target, digest.hexdigest(), os.path.getsize(path), moved)


class _DiskCopy:
    """Copies data over pairs of connections, one request at a time on each. key: of the digests."""

    def __init__(
        self, sources: list[Any], sinks: list[Any], overlay: bool, key: bytes | None = None
    ) -> None:
        self._free, self._overlay = deque(zip(sources, sinks, strict=True)), overlay
        self._key = key
        self._writes: dict[int, float] = {}

    def longest_write_s(self) -> float:
        """Age of the oldest pending write."""
        oldest_s = min(self._writes.copy().values(), default=None)
        return 0 if oldest_s is None else time.monotonic() - oldest_s

    @contextlib.contextmanager
    def _track_write(self) -> Iterator[None]:
        thread_id = threading.get_ident()
        self._writes[thread_id] = time.monotonic()
        try:
            yield
        finally:
            del self._writes[thread_id]

    def copy_all(
        self, extents: Iterable[Extent]
    ) -> Iterator[tuple[checksum_blocks.ChecksumBlock, int]]:
        """Yield (checksum block, bytes read) in the order of the disk, after each was written.
        extents: from the first source."""
        waiting: deque[Future[tuple[checksum_blocks.ChecksumBlock, int]]] = deque()
        with ThreadPoolExecutor(READERS) as pool:
            try:
                for extent in _split(extents):
                    waiting.append(pool.submit(self._copy_extent, extent))
                    if len(waiting) >= _AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _copy_extent(self, extent: Extent) -> tuple[checksum_blocks.ChecksumBlock, int]:
        source, sink = pair = self._free.popleft()
        try:
            return self._transfer(extent, source, sink)
        finally:
            self._free.append(pair)

    def _transfer(
        self, extent: Extent, source: Any, sink: Any
    ) -> tuple[checksum_blocks.ChecksumBlock, int]:
        if extent.kind == ZEROS:
            self._zero(extent, sink)
            return checksum_blocks.zeros(extent.offset, extent.length), 0
        try:
            data = source.pread(extent.length, extent.offset)
        except exports.nbd.Error as exc:
            raise errors.ConnectionFailed(
                f"the host no longer exports the disk: {exc.string}"
            ) from exc
        if data == _ZERO_BLOCK[: extent.length]:
            self._zero(extent, sink)
            return checksum_blocks.zeros(extent.offset, extent.length), extent.length
        with self._track_write():
            sink.pwrite(data, extent.offset)
        return checksum_blocks.compute(extent.offset, data, self._key), extent.length

    def _zero(self, extent: Extent, sink: Any) -> None:
        """Write zeros to an overlay; a new file reads as zeros already."""
        if not self._overlay:
            return
        with self._track_write():
            for begin in range(extent.offset, extent.end, exports.QUERY_BYTES):
                sink.zero(min(exports.QUERY_BYTES, extent.end - begin), begin)


@contextlib.contextmanager
def _storage_watchdog(copy: _DiskCopy, silent_s: float) -> Iterator[None]:
    """Terminate this process with a message if the storage of the target hangs; the alarm would
    blame the host."""
    finished = threading.Event()

    def watch_writes() -> None:
        while not finished.wait(_REPORT_S):
            if copy.longest_write_s() > _STORAGE * silent_s:
                detached.send(
                    {
                        "error": (
                            f"the target's storage did not answer for {_STORAGE * silent_s:.0f} s"
                        )
                    }
                )
                os._exit(1)

    threading.Thread(target=watch_writes, daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _split(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Split data at multiples of BLOCK_BYTES."""
    for extent in extents:
        if extent.kind == ZEROS:
            yield extent
            continue
        offset = extent.offset
        while offset < extent.end:
            end = min(extent.end, (offset // BLOCK_BYTES + 1) * BLOCK_BYTES)
            yield Extent(offset, end - offset, DATA)
            offset = end


def _align(extents: Iterable[Extent], unit: int) -> Iterator[Extent]:
    """Extend the extents to whole units; a unit with partial data is data."""
    covered_end = 0
    for extent in extents:
        begin = max(covered_end, extent.offset)
        if begin >= extent.end:
            continue
        first, last = _round_down(begin, unit), _round_down(extent.end, unit)
        covered_end = _round_up(extent.end, unit)
        if extent.kind == DATA:
            yield Extent(first, covered_end - first, DATA)
            continue
        if first < begin:
            yield Extent(first, unit, DATA)
            first += unit
        if first < last:
            yield Extent(first, last - first, extent.kind)
        if max(first, last) < covered_end:
            yield Extent(last, unit, DATA)


def _round_down(offset: int, unit: int) -> int:
    return offset // unit * unit


def _round_up(offset: int, unit: int) -> int:
    return -(-offset // unit) * unit


@contextlib.contextmanager
def _serve(path: str, image_args: list[str]) -> Iterator[list[Any]]:
    """Yield connections to a qemu-nbd that writes to the qcow2. It has ended when the block
    ends."""
    argv = ["qemu-nbd", "--cache=writeback", "--discard=unmap", f"--shared={READERS}"]
    # in another folder than the file, because socket paths are limited to 107 bytes
    with private_folder.temporary(RUN, FOLDERS) as folder:
        socket = os.path.join(folder, "nbd")
        argv += [f"--socket={socket}", *image_args]
        with subprocess.Popen(tools.command(argv), stdin=subprocess.DEVNULL) as process:
            try:
                sinks = [_connect_sink(socket, process) for _ in range(READERS)]
                yield sinks
                for sink in sinks:
                    sink.shutdown()
                process.wait(timeout=_ENDS_S)
            except (exports.nbd.Error, subprocess.TimeoutExpired) as exc:
                raise errors.OperationFailed(f"cannot write {path}: {exc}") from exc
            finally:
                process.kill()
    if process.returncode:
        raise errors.OperationFailed(f"cannot write {path}: {argv[0]} failed")


def _connect_sink(socket: str, process: subprocess.Popen[bytes]) -> Any:
    deadline = time.monotonic() + _BEGINS_S
    while process.poll() is None and time.monotonic() < deadline:
        if os.path.exists(socket):
            sink = exports.nbd.NBD()
            with contextlib.suppress(exports.nbd.Error):  # it does not listen yet
                sink.connect_unix(socket)
                return sink
        time.sleep(0.01)
    raise errors.OperationFailed("qemu-nbd does not start")


def _create(path: str, disk: PulledDisk, key: Key | None, compressed: str | None = None) -> None:
    argv = ["qemu-img", "create", "-q", "-f", "qcow2"]
    if compressed:
        argv += ["-o", f"compression_type={compressed}"]
    if key:
        # do not open the backing file, which needs the key too; its name and the size are known
        options = f"encrypt.format={keyfile.LUKS},encrypt.key-secret={keyfile.ID},{_QUICK}"
        argv += ["-u", "--object", key.qemu_object, "-o", options]
    if disk.backing:
        argv += ["-b", disk.backing, "-F", str(disk.backing_format)]
    argv += [path, str(disk.size_bytes)]
    for tries_left in reversed(range(_TRIES)):
        try:
            tools.run(argv, f"create {path}")
            return
        except errors.OperationFailed as exc:
            if _BUSY not in exc.text or not tries_left:
                raise


def main(_argv: list[str]) -> int:
    """The program."""
    os.umask(0o077)
    try:
        exports.require()
        job = PullJob.from_answer(json.load(sys.stdin), "the job")
        done = pull(job, detached.send, signal.alarm)
        detached.send({"done": [disk.to_answer() for disk in done]})
    except errors.VirtError as exc:
        detached.send({"error": exc.text})
        return 1
    except (OSError, exports.nbd.Error) as exc:
        detached.send({"error": errors.OperationFailed(exc).text})
        return 1
    return 0
