"""Reads a guest's disks from its host and writes them as qcow2, with the digests of what was read.

A program of its own, which the distribution's Python runs: its binding of libnbd is there. What it
is to do is on its standard input, how far it is and what became of it are lines of JSON on its
standard output.
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
from saltvirt.host import paths
from saltvirt.images import locks, tools
from saltvirt.schema import Message
from saltvirt.units import human_bytes

# of one request, and of a digest: a reader of the digests has so much in memory
MIB = 1024**2
BLOCK_BYTES = MIB
READERS = 4
_AHEAD = 4 * READERS
_REPORT_S = 0.5
_BEGINS_S, _ENDS_S = 20, 600
# beside the data: what a file system needs to stay usable, and the qcow2's own tables
RESERVED_BYTES = 64 * 1024**2
_ZERO_BLOCK = bytes(BLOCK_BYTES)
# of a qcow2: what is compressed is written by whole ones
_SECTOR, CLUSTER_BYTES = 512, 64 * 1024
# a host may be silent so long, and the storage of the target this part of it
SILENT_S, _STORAGE = 300, 0.9
RUN, FOLDERS = f"{paths.RUN}/backups", "pull-"

Watch = Callable[[int], object]
# a key of 256 bits is not guessed: it need not take seconds to open each file of a chain by it
_QUICK = "encrypt.iter-time=10"
# QEMU measures how long LUKS takes by its own CPU time, and where others have the CPU that can be
# nothing: then it gives up, before there is a file
_BUSY, _TRIES = "Unable to get accurate CPU usage", 20


@dataclass(frozen=True)
class PulledDisk(Message):
    """A disk to be read. target: libvirt's name of it. export: its name at the server. contexts: of
    bitmaps; none: all of it is read. backing, backing_format: what its file is an overlay on, from
    its own folder. layers: so many files it is with all that it stands on. stored_bytes: the length
    of the last whole one of it at the target; None: there is none. port: where it is served; None:
    where all are."""

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
    """Of a disk. data: so much is to be read, as the host tells it now. most: so much it can be
    while the guest writes on: QEMU copies what is overwritten by whole clusters, and tells of all
    of them as data. stored: so much is expected to be stored; None: nobody can tell before."""

    data_bytes: int
    max_bytes: int
    stored_bytes: int | None


@dataclass(frozen=True)
class PullJob(Message):
    """What is to be done. folder: where the files are made. bandwidth_mib_s: so much is read at
    most; None: as fast as it goes. key: with which the files are encrypted. silent_s: the host may
    be silent so long. compress: how QEMU compresses them; None: it does not."""

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
        """How a disk is. One whose end is within a cluster is not."""
        return None if disk.size_bytes % CLUSTER_BYTES else self.compress

    @property
    def server(self) -> NbdServer:
        """Where the disks are served."""
        return NbdServer(self.host, self.port, self.certificates)


@dataclass(frozen=True)
class WrittenDisk(Message):
    """A disk that was. moved_bytes: so much was read from the host."""

    target: str
    pieces_sha256: str
    stored_bytes: int
    moved_bytes: int


@dataclass
class _PullProgress:
    """total: so much is to be read. most: and no more than that. tell: called with a dict now and
    then. bandwidth_mib_s: who adds waits so long that no more is read, from the first on. folder:
    where it goes. watch: see `pull`."""

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
        """So much more was read."""
        now = time.monotonic()
        if self.started_s is None:
            self.started_s = now
        self.done_bytes += length
        if self.done_bytes > (self.total_bytes if self.max_bytes is None else self.max_bytes):
            raise errors.OperationFailed("the host shows more data than it told of")
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
    """Reads them all, one after the other. watch: told within how many seconds it goes on, or this
    process has to end, for no reading from a host has an end of its own; 0: as long as it takes.
    Raises VirtError."""
    sizes = [_measure(job, disk, watch) for disk in job.disks]
    _require_space(job.folder, sum(size.stored_bytes or 0 for size in sizes))
    progress = _PullProgress(
        sum(size.data_bytes for size in sizes), report, job.bandwidth_mib_s, job.folder, watch,
        job.silent_s, sum(size.max_bytes for size in sizes),
    )  # fmt: skip
    # the host shows them as long as somebody is connected: also while a file is checked here
    with _connect_source(job.server, job.disks[0]):
        return [_pull_disk(job, disk, progress) for disk in job.disks]


def _measure(job: PullJob, disk: PulledDisk, watch: Watch) -> TransferSize:
    """How much data of a disk is to be read."""
    watch(job.silent_s)
    with _connect_source(job.server, disk) as source:
        if source.get_size() != disk.size_bytes:
            raise errors.OperationFailed(
                f"{disk.target} has {source.get_size()} bytes by now, it had {disk.size_bytes}"
            )
        data = max_bytes = 0
        for extent in _extents_to_read(job, source, disk, watch):
            data += extent.length if extent.kind == DATA else 0
            max_bytes += _round_up(extent.end, CLUSTER_BYTES) - _round_down(
                extent.offset, CLUSTER_BYTES
            )
    return TransferSize(data, min(max_bytes, disk.size_bytes), _expected_bytes(job, disk, data))


def _expected_bytes(job: PullJob, disk: PulledDisk, data: int) -> int | None:
    """How much is expected to be stored of so much data: of a device all is data, and what of it is
    zeros is found when it is read; what can be squeezed is found then, too."""
    if job.compression_of(disk) or (data == disk.size_bytes and not disk.contexts):
        return None if disk.stored_bytes is None else min(data, disk.stored_bytes)
    return data


def _extents_to_read(job: PullJob, source: Any, disk: PulledDisk, watch: Watch) -> Iterator[Extent]:
    """What of a disk is to be read: whole clusters where it is compressed, else whole sectors. A
    file that ends within a sector reads as zeros from there on, and its host says so."""
    extents = exports.extents(source, disk.size_bytes, disk.contexts, lambda: watch(job.silent_s))
    return _align(extents, CLUSTER_BYTES if job.compression_of(disk) else _SECTOR)


def _require_space(folder: str, needed_bytes: int, done: int = 0) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed_bytes + RESERVED_BYTES:
        reason = f"{human_bytes(needed_bytes)} of data are to be stored"
        if done:
            reason = f"after {human_bytes(done)} were read, and there is more to come"
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
            progress.watch(0)  # the host has nothing to do with what comes now
            sinks[0].flush()  # of all: one program writes
        checksums.flush()
        os.fsync(checksums.fileno())
    tools.run(["qemu-img", "check", "-q", *image_args], f"check {path}", timeout_s=None)
    _sync(path)
    return WrittenDisk(disk.target, digest.hexdigest(), os.path.getsize(path), moved)


class _DiskCopy:
    """Connections to what is read, and as many to what is written: at each one request is answered
    at a time. key: of the digests."""

    def __init__(
        self, sources: list[Any], sinks: list[Any], overlay: bool, key: bytes | None = None
    ) -> None:
        self._free, self._overlay = deque(zip(sources, sinks, strict=True)), overlay
        self._key = key
        self._writes: dict[int, float] = {}

    def longest_write_s(self) -> float:
        """For how long the longest of the writes has been under way."""
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
        """The pieces of a disk in their order, each with how much of it was read, when it is
        written. extents: by the first of the sources."""
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
            raise errors.ConnectionFailed(f"the host shows the disk no more: {exc.string}") from exc
        if data == _ZERO_BLOCK[: extent.length]:
            self._zero(extent, sink)
            return checksum_blocks.zeros(extent.offset, extent.length), extent.length
        with self._track_write():
            sink.pwrite(data, extent.offset)
        return checksum_blocks.compute(extent.offset, data, self._key), extent.length

    def _zero(self, extent: Extent, sink: Any) -> None:
        """A new file reads as zeros by itself, an overlay as what is below it."""
        if not self._overlay:
            return
        with self._track_write():
            for begin in range(extent.offset, extent.end, exports.QUERY_BYTES):
                sink.zero(min(exports.QUERY_BYTES, extent.end - begin), begin)


@contextlib.contextmanager
def _storage_watchdog(copy: _DiskCopy, silent_s: float) -> Iterator[None]:
    """Ends this process where the storage of the target hangs, with words that say so: the alarm
    would say that the host is silent."""
    finished = threading.Event()

    def watch_writes() -> None:
        while not finished.wait(_REPORT_S):
            if copy.longest_write_s() > _STORAGE * silent_s:
                _send({"error": f"the target's storage was silent for {_STORAGE * silent_s:.0f} s"})
                os._exit(1)

    threading.Thread(target=watch_writes, daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _split(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Data in pieces, each within a grid of PIECE_BYTES."""
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
    """Whole units: one that is told of in part is data."""
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
    """Connections to a qemu-nbd that writes to a qcow2; when the block ends, it has ended, too."""
    argv = ["qemu-nbd", "--cache=writeback", "--discard=unmap", f"--shared={READERS}"]
    # not beside the file: the path of a socket has 107 bytes at most
    with locks.temporary_folder(RUN, FOLDERS) as folder:
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
                raise errors.OperationFailed(f"{path} cannot be written: {exc}") from exc
            finally:
                process.kill()
    if process.returncode:
        raise errors.OperationFailed(f"{path} cannot be written: {argv[0]} failed")


def _connect_sink(socket: str, process: subprocess.Popen[bytes]) -> Any:
    deadline = time.monotonic() + _BEGINS_S
    while process.poll() is None and time.monotonic() < deadline:
        if os.path.exists(socket):
            sink = exports.nbd.NBD()
            with contextlib.suppress(exports.nbd.Error):  # it does not listen yet
                sink.connect_unix(socket)
                return sink
        time.sleep(0.01)
    raise errors.OperationFailed("qemu-nbd does not begin")


def _create(path: str, disk: PulledDisk, key: Key | None, compressed: str | None = None) -> None:
    argv = ["qemu-img", "create", "-q", "-f", "qcow2"]
    if compressed:
        argv += ["-o", f"compression_type={compressed}"]
    if key:
        # what it stands on is not opened, for that needs the key, too: its name and size are known
        options = f"encrypt.format={keyfile.LUKS},encrypt.key-secret={keyfile.ID},{_QUICK}"
        argv += ["-u", "--object", key.qemu_object, "-o", options]
    if disk.backing:
        argv += ["-b", disk.backing, "-F", str(disk.backing_format)]
    argv += [path, str(disk.size_bytes)]
    for tries_left in reversed(range(_TRIES)):
        try:
            tools.run(argv, f"make {path}")
            return
        except errors.OperationFailed as exc:
            if _BUSY not in exc.text or not tries_left:
                raise


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _send(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)


def main(_argv: list[str]) -> int:
    """The program."""
    os.umask(0o077)
    try:
        exports.require()
        job = PullJob.from_answer(json.load(sys.stdin), "what is to be done")
        done = pull(job, _send, signal.alarm)
        _send({"done": [disk.to_answer() for disk in done]})
    except errors.VirtError as exc:
        _send({"error": exc.text})
        return 1
    except (OSError, exports.nbd.Error) as exc:
        _send({"error": errors.OperationFailed(exc).text})
        return 1
    return 0
