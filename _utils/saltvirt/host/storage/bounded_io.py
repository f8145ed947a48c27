"""Questions about files that may never be answered: every one of them has an end.

Who asks a dead server, or a file system or a block device whose disk is gone, waits in the kernel,
where nothing ends him. So they are asked by a process beside us, which is left behind when it does
not answer. What is in memory or on the file system that the system itself runs from we ask
ourselves: without that one nothing runs here.
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

from saltvirt.host.storage import file_probe, mounts

# how long a server may take for one answer, and for the list of a large folder
ANSWER_TIMEOUT_S, LIST_TIMEOUT_S = 5, 30
# one that was silent is not asked again for so long
SILENT_S = 60
# how long what is mounted is remembered
_TABLE_MAX_AGE_S = 1
_MAX_LINKS = 40
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# file systems of the kernel itself, and those in memory
_KERNELS = {
    *("proc", "sysfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf"),
    *("pstore", "mqueue", "hugetlbfs", "configfs", "fusectl", "binfmt_misc", "efivarfs"),
    *("selinuxfs", "rpc_pipefs", "nsfs", "rootfs", "tmpfs", "ramfs", "devtmpfs"),
}
_DEVICES = "/sys/dev/block"

_locks = [threading.RLock()]
_worker: list[_Worker] = []
# until when a place is not asked again
_silent: dict[str, float] = {}
_recorders: list[set[str]] = []
# when what is mounted was read, and where it may not answer
_table: list[tuple[float, tuple[str, ...]]] = []


class _Worker(NamedTuple):
    """The process beside us, and whose it is."""

    pid: int
    process: subprocess.Popen[bytes]
    channel: socket.socket


@dataclass(frozen=True)
class FileStat:
    """What os.stat says."""

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
    """Whoever held the lock is not in this process: without this it would wait for ever."""
    _locks[:] = [threading.RLock()]


os.register_at_fork(after_in_child=_reset_locks)


class StorageTimeout(OSError):
    """A file system does not answer. place: where it is mounted."""

    strerror: str

    def __init__(self, mount_point: str) -> None:
        super().__init__(errno.ETIMEDOUT, f"{mount_point} does not answer")
        self.mount_point = mount_point


@contextlib.contextmanager
def record_timeouts() -> Iterator[set[str]]:
    """A set that learns which file systems do not answer in the block."""
    unresponsive: set[str] = set()
    _recorders.append(unresponsive)
    try:
        yield unresponsive
    finally:
        _recorders[:] = [recorder for recorder in _recorders if recorder is not unresponsive]


def _far_mounts() -> tuple[str, ...]:
    """Where something is mounted that may not answer."""
    now = time.monotonic()
    if not _table or now - _table[0][0] > _TABLE_MAX_AGE_S:
        mount_list = mounts.read()
        system = [m.number for m in mount_list if m.mount_point == "/" and m.kind in mounts.LOCAL][
            -1:
        ]
        far = {
            m.mount_point for m in mount_list if m.kind not in _KERNELS and m.number not in system
        }
        _table[:] = [(now, tuple(sorted(far, key=len, reverse=True)))]
    return _table[0][1]


def _far_mount_of(path: str, far: Sequence[str]) -> str | None:
    """The far one that shows a path without links; None when none does."""
    return next(
        (
            mount_point
            for mount_point in far
            if f"{path}/".startswith(f"{mount_point.rstrip('/')}/")
        ),
        None,
    )


def _raise_timeout(mount_point: str) -> NoReturn:
    for recorder in _recorders:
        recorder.add(mount_point)
    raise StorageTimeout(mount_point)


def _run_query(mount_point: str | None, query_name: str, *arguments: Any) -> Any:
    """The answer to a question about a path, by the other process where it lies on ``place``."""
    if mount_point is None:
        return file_probe.QUERIES[query_name](*arguments)
    with _locks[0]:
        if time.monotonic() < _silent.get(mount_point, 0):
            _raise_timeout(mount_point)
        response = _exchange(
            [query_name, *arguments], LIST_TIMEOUT_S if query_name == "names" else ANSWER_TIMEOUT_S
        )
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
    """(what the process beside us answers, descriptors); None when it does not, and is left behind
    then."""
    try:
        channel = _worker_channel()
        channel.sendall(json.dumps(query).encode() + b"\n")
        text, fds = _receive(channel, time.monotonic() + timeout_s)
        return json.loads(text), fds
    except (OSError, ValueError):
        _abandon_worker()
        return None
    except BaseException:  # what it still answers would be taken for that to the next question
        _abandon_worker()
        raise


def _abandon_worker() -> None:
    """Leaves the process beside us behind: it ends when the kernel lets it, nobody waits for it."""
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
        for fd in new_fds:  # recv_fds takes no notice of flags
            os.set_inheritable(fd, False)
        text, fds = text + chunk, fds + new_fds
    return text, fds


def _worker_channel() -> socket.socket:
    """The way to the process beside us; each of ours has its own."""
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
    """The path without links, by questions that have an end. Raises Silent, and OSError where
    links go round."""
    resolved, pending, links = "/", os.path.join(os.getcwd(), path).split("/")[::-1], 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            resolved = os.path.dirname(resolved)
            continue
        mount_point, components, candidate = (
            _far_mount_of(os.path.join(resolved, name), far),
            [name],
            os.path.join(resolved, name),
        )
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
    """The disks below a block device, as one name; None of what is none. Only the kernel is asked:
    what lies on one dead disk is asked for once."""
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
    """The path without links; as it is where it cannot be followed."""
    try:
        far = _far_mounts()
        return _resolve(path, far) if far else os.path.realpath(path)
    except (OSError, ValueError):  # such as a NUL in it
        return path


def stat(path: str | os.PathLike[str]) -> FileStat:
    """What os.stat says of a path. Raises OSError; Silent, when it does not answer."""
    return FileStat(**_query("file_stat", path, True))


def lexists(path: str) -> bool:
    """Whether something is at the path, also a link that leads nowhere; False only where that is
    sure. Raises Silent."""
    try:
        _query("file_stat", path, follow=False)
    except StorageTimeout:
        raise
    except (OSError, ValueError) as exc:
        return not _is_absent(exc)
    return True


def _is_absent(exc: OSError | ValueError) -> bool:
    """Whether an error says that nothing can be at a path: not that it could not be looked at."""
    return isinstance(exc, ValueError) or exc.errno in _ABSENT_ERRNOS


def files(folder: str) -> list[str]:
    """The paths of the files in a folder, and of links to files. Raises OSError."""
    return [path for path, kind in _entries(folder) if kind == file_probe.FILE]


def files_below(folder: str) -> Iterator[str]:
    """The same with all folders in it; none of what is no folder. Raises OSError."""
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
    """(path, kind) of what is in a folder; a link to a file is a file."""
    rows = [(os.path.join(folder, name), kind) for name, kind in _query("names", folder)]
    return [
        (path, file_probe.FILE if kind == file_probe.LINK and is_file(path) else kind)
        for path, kind in rows
    ]


def is_file(path: str) -> bool:
    """Whether it is a file, or a link to one; False only where that is sure. Raises Silent."""
    try:
        return S_ISREG(stat(path).st_mode)
    except StorageTimeout:
        raise
    except (OSError, ValueError) as exc:
        return not _is_absent(exc)


def names(folder: str, max_entries: int | None = None) -> list[str]:
    """The names of what is in a folder. Raises OSError, E2BIG for more of them than ``most``."""
    return [
        name for name, _ in _query("names", folder, *([] if max_entries is None else [max_entries]))
    ]


def room(path: str) -> tuple[int, int, int]:
    """(the size of a unit in bytes, units in all, free units) of the file system that a path is
    on. Raises OSError."""
    unit, total, free = _query("room", path)
    return unit, total, free


def head(path: str, size: int) -> bytes | None:
    """The first bytes of a file or block device; None of anything else. Raises OSError."""
    text = _query("head", path, size)
    return None if text is None else base64.b64decode(text)


def locked(path: str) -> bool:
    """Whether a QEMU holds its locks on a file. Raises Silent."""
    return bool(_query("locked", path))


def open_read(path: str) -> int | None:
    """A descriptor for reading; None of what is neither a file nor a block device. Raises
    OSError."""
    _, fd = _query("open_read", path)
    return None if fd is None else int(fd)


def lock_against_open(path: str) -> tuple[bool, int | None]:
    """(whether a QEMU has a file open, a descriptor with which no other QEMU opens it, None of what
    is no file). Raises OSError."""
    already_open, fd = _query("lock_against_open", path)
    return already_open, fd


def lock_against_write(path: str) -> tuple[tuple[bool, str | None], int | None]:
    """((whether a QEMU may write there, the error where that cannot be told), a descriptor with
    which no other QEMU does, None of what holds no data). Raises OSError."""
    (is_writable, reason), fd = _query("lock_against_write", path)
    return (is_writable, reason), fd
