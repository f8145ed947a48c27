"""File system queries with a timeout.

A process that queries an unreachable server, or a file system or block device whose disk is gone,
blocks in the kernel and cannot be interrupted. A worker process therefore runs such queries and is
abandoned if it does not respond. Queries about memory file systems and the root file system run in
this process: without the root file system nothing works.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from stat import S_ISBLK, S_ISREG
from typing import Any, NamedTuple, NoReturn

from saltvirt.system import file_probe, mounts

# timeouts of one query, and of the list of a large folder
ANSWER_TIMEOUT_S, LIST_TIMEOUT_S = 5, 30
# a mount point that timed out is not queried again for this time
SILENT_S = 60
# how long the list of mounts is cached
_TABLE_MAX_AGE_S = 1
_MAX_LINKS = 40
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# virtual file systems of the kernel, and those in memory
_KERNELS = {
    *("proc", "sysfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf"),
    *("pstore", "mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs"),
    *("selinuxfs", "rpc_pipefs", "nsfs", "rootfs", "tmpfs", "ramfs", "devtmpfs"),
}
_DEVICES = "/sys/dev/block"

_locks = [threading.RLock()]
_worker: list[_Worker] = []
# {mount point that timed out: when it may be queried again}
_silent: dict[str, float] = {}
_recorders: list[set[str]] = []
# (when the mounts were read, mount points that may not respond)
_table: list[tuple[float, tuple[str, ...]]] = []


class _Worker(NamedTuple):
    """The worker process, and the PID of the process that started it."""

    pid: int
    process: subprocess.Popen[bytes]
    channel: socket.socket


@dataclass(frozen=True)
class FileStat:
    """The fields of os.stat."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_rdev: int
    st_mtime: float
    st_mtime_ns: int
    st_ctime_ns: int


def _reset_locks() -> None:
    """Replace the lock in a forked child: the thread that held it does not exist there."""
    _locks[:] = [threading.RLock()]


os.register_at_fork(after_in_child=_reset_locks)


class StorageTimeout(OSError):
    """A file system does not respond.

    mount_point: where the file system is mounted.
    """

    strerror: str

    def __init__(self, mount_point: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"{mount_point} does not respond")
        self.mount_point = mount_point


@contextlib.contextmanager
def record_timeouts() -> Iterator[set[str]]:
    """Yield a set that collects the mount points that time out within the block."""
    unresponsive: set[str] = set()
    _recorders.append(unresponsive)
    try:
        yield unresponsive
    finally:
        _recorders[:] = [recorder for recorder in _recorders if recorder is not unresponsive]


def _far_mounts() -> tuple[str, ...]:
    """Return the mount points whose file systems may not respond, longest path first."""
    now = time.monotonic()
    if not _table or now - _table[0][0] > _TABLE_MAX_AGE_S:
        table = mounts.read()
        roots = [m.number for m in table if m.mount_point == "/" and m.kind in mounts.LOCAL][-1:]
        far = {m.mount_point for m in table if m.kind not in _KERNELS and m.number not in roots}
        _table[:] = [(now, tuple(sorted(far, key=len, reverse=True)))]
    return _table[0][1]


def _far_mount_of(path: str, far: Sequence[str]) -> str | None:
    """Return the mount point that contains a path without symbolic links, or None."""
    folder = f"{path}/"
    return next((point for point in far if folder.startswith(f"{point.rstrip('/')}/")), None)


def _raise_timeout(mount_point: str) -> NoReturn:
    for recorder in _recorders:
        recorder.add(mount_point)
    raise StorageTimeout(mount_point)


def _run_query(mount_point: str | None, query_name: str, *arguments: Any) -> Any:
    """Run a query, in the worker process if the path is below ``mount_point``."""
    if mount_point is None:
        return file_probe.QUERIES[query_name](*arguments)
    with _locks[0]:
        if time.monotonic() < _silent.get(mount_point, 0):
            _raise_timeout(mount_point)
        timeout_s = LIST_TIMEOUT_S if query_name == "names" else ANSWER_TIMEOUT_S
        response = _exchange([query_name, *arguments], timeout_s)
        if response is None:
            _silent[mount_point] = time.monotonic() + SILENT_S
            _raise_timeout(mount_point)
    answer, fds = response
    if "error" in answer:
        raise OSError(answer["error"], os.strerror(answer["error"]))
    if query_name in file_probe.WITH_DESCRIPTOR:
        return answer["answer"], fds[0] if fds else None
    return answer["answer"]


def _exchange(query: list[Any], timeout_s: float) -> tuple[Any, list[int]] | None:
    """Return (response, descriptors) from the worker, or None after abandoning it on a timeout."""
    try:
        channel = _worker_channel()
        channel.sendall(json.dumps(query).encode() + b"\n")
        text, fds = _receive(channel, time.monotonic() + timeout_s)
        return json.loads(text), fds
    except (OSError, ValueError):
        _abandon_worker()
        return None
    except BaseException:  # a late response would be taken for that of the next query
        _abandon_worker()
        raise


def _abandon_worker() -> None:
    """Kill the worker and forget it. It exits when the kernel lets it; this process does not
    wait."""
    if _worker and _worker[0].pid == os.getpid():
        _worker[0].process.kill()
        _worker[0].channel.close()
    _worker.clear()


def _receive(channel: socket.socket, deadline: float) -> tuple[bytes, list[int]]:
    text, fds = b"", list[int]()
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([channel], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        chunk, new_fds, _, _ = socket.recv_fds(channel, 1 << 20, 1)
        if not chunk:
            raise TimeoutError
        for fd in new_fds:  # recv_fds ignores its flags
            os.set_inheritable(fd, False)
        text, fds = text + chunk, fds + new_fds
    return text, fds


def _worker_channel() -> socket.socket:
    """Return the channel to the worker, starting one if necessary. Each process has its own
    worker."""
    if not _worker or _worker[0].pid != os.getpid() or _worker[0].process.poll() is not None:
        parent_end, worker_end = socket.socketpair()
        argv = [sys.executable or "python3", "-I", "-S", file_probe.__file__]
        devnull = subprocess.DEVNULL
        with worker_end:
            worker_process = subprocess.Popen(
                argv, stdin=worker_end.fileno(), stdout=devnull, stderr=devnull, cwd="/"
            )
        _worker[:] = [_Worker(os.getpid(), worker_process, parent_end)]
    return _worker[0].channel


def _resolve(path: str, far: Sequence[str]) -> str:
    """Resolve symbolic links in a path with queries that time out.

    Raises StorageTimeout, and OSError for a symbolic link loop.
    """
    resolved, pending, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            resolved = os.path.dirname(resolved)
            continue
        components, candidate = [name], os.path.join(resolved, name)
        mount_point = _far_mount_of(candidate, far)
        while mount_point and pending and pending[-1] not in ("", ".", ".."):
            candidate = os.path.join(candidate, pending[-1])
            if _far_mount_of(candidate, far) != mount_point:
                break
            components.append(pending.pop())
        depth, target = _run_query(mount_point, "walk", resolved, components)
        resolved = os.path.join(resolved, *components[:depth])
        if target is None:
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        resolved = "/" if target.startswith("/") else resolved
        pending += components[depth + 1 :][::-1] + target.split("/")[::-1]
    return resolved


def _disks(path: str) -> str | None:
    """Return the physical disks below a block device as one name, or None for other files.

    Only sysfs is read, so one dead disk causes one timeout.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not S_ISBLK(status.st_mode):
        return None
    devices: set[str] = set()
    todo = [f"{_DEVICES}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"]
    while todo:
        folder = os.path.realpath(todo.pop())
        if os.path.exists(f"{folder}/partition"):
            folder = os.path.dirname(folder)
        try:
            parts = os.listdir(f"{folder}/slaves")
        except OSError:
            parts = []
        todo += [f"{folder}/slaves/{part}" for part in parts]
        devices |= set() if parts else {f"/dev/{os.path.basename(folder).replace('!', '/')}"}
    return ", ".join(sorted(devices))


def _query(
    query_name: str, path: str | os.PathLike[str], *arguments: int | bool, follow: bool = True
) -> Any:
    far, path = _far_mounts(), os.fspath(path)
    if "\0" in path:
        raise ValueError("embedded null byte")
    if not far:
        resolved = path
    elif follow:
        resolved = _resolve(path, far)
    else:
        folder, name = os.path.split(os.path.abspath(path))
        resolved = os.path.join(_resolve(folder, far), name)
    mount_point = _far_mount_of(resolved, far)
    if mount_point is None and query_name in file_probe.OPENING_QUERIES:
        mount_point = _disks(resolved)
    return _run_query(mount_point, query_name, resolved, *arguments)


def real(path: str) -> str:
    """Return the path without symbolic links, or the path itself if it cannot be resolved."""
    try:
        far = _far_mounts()
        return _resolve(path, far) if far else os.path.realpath(path)
    except (OSError, ValueError):  # such as an embedded null byte
        return path


def stat(path: str | os.PathLike[str]) -> FileStat:
    """Return the status of a path. Raises OSError; StorageTimeout if it does not respond."""
    return FileStat(**_query("file_stat", path, True))


def lexists(path: str) -> bool:
    """Return False only if the path certainly does not exist. A dangling link exists.

    Raises StorageTimeout.
    """
    try:
        _query("file_stat", path, follow=False)
    except StorageTimeout:
        raise
    except (OSError, ValueError) as exc:
        return not _is_absent(exc)
    return True


def _is_absent(exc: OSError | ValueError) -> bool:
    """Return whether an error proves that the path does not exist."""
    return isinstance(exc, ValueError) or exc.errno in _ABSENT_ERRNOS


def files(folder: str) -> list[str]:
    """Return the paths of the files in a folder, including links to files. Raises OSError."""
    return [path for path, kind in _entries(folder) if kind == file_probe.FILE]


def files_below(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder; nothing if it is not a folder. Raises
    OSError."""
    try:
        entries = _entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for path, kind in entries:
        if kind == file_probe.FILE:
            yield path
        elif kind == file_probe.FOLDER:
            yield from files_below(path)


def _entries(folder: str) -> list[tuple[str, str]]:
    """Return (path, kind) of each folder entry. A link to a file counts as a file."""
    rows = [(os.path.join(folder, name), kind) for name, kind in _query("names", folder)]
    return [
        (path, file_probe.FILE if kind == file_probe.LINK and is_file(path) else kind)
        for path, kind in rows
    ]


def is_file(path: str) -> bool:
    """Return False only if the path is certainly neither a file nor a link to one.

    Raises StorageTimeout.
    """
    try:
        return S_ISREG(stat(path).st_mode)
    except StorageTimeout:
        raise
    except (OSError, ValueError) as exc:
        return not _is_absent(exc)


def names(folder: str, max_entries: int | None = None) -> list[str]:
    """Return the names in a folder. Raises OSError, with E2BIG for more than ``max_entries``."""
    return [
        name for name, _ in _query("names", folder, *([] if max_entries is None else [max_entries]))
    ]


def room(path: str) -> tuple[int, int, int]:
    """Return (block size in bytes, total blocks, free blocks) of a path's file system. Raises
    OSError."""
    unit, total, free = _query("room", path)
    return unit, total, free


def head(path: str, size: int) -> bytes | None:
    """Return the first bytes of a file or block device, or None for other types. Raises OSError."""
    text = _query("head", path, size)
    return None if text is None else base64.b64decode(text)


def locked(path: str) -> bool:
    """Return whether a QEMU process holds locks on a file. Raises StorageTimeout."""
    return bool(_query("locked", path))


def open_read(path: str) -> int | None:
    """Open a file or block device for reading; None for other types. Raises OSError."""
    _, fd = _query("open_read", path)
    return None if fd is None else int(fd)


def lock_against_open(path: str) -> tuple[bool, int | None]:
    """Lock a file so that no other QEMU process can open it.

    Returns (whether a QEMU process already has it open, descriptor that holds the lock or None if
    it is not a file). Raises OSError.
    """
    already_open, fd = _query("lock_against_open", path)
    return already_open, fd


def lock_against_write(path: str) -> tuple[tuple[bool, str | None], int | None]:
    """Lock a file or device so that no other QEMU process can write to it.

    Returns ((whether a QEMU process may be writing, error if that is unknown), descriptor that
    holds the lock or None for other types). Raises OSError.
    """
    (is_writable, reason), fd = _query("lock_against_write", path)
    return (is_writable, reason), fd
