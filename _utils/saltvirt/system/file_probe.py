"""Queries about files.

As a program, this module answers such queries for its parent process; see bounded_io. It imports no
other module of this library, to start fast.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import struct
from collections.abc import Callable, Collection
from typing import Any

# from QEMU's block/file-posix.c: one byte per permission in use, and per permission not shared
USED, UNSHARED = 100, 200
PERMISSIONS = range(5)
READ, WRITE, RESIZE = 0, 1, 3
# bytes locked by a reader that tolerates no writer; a writer locks at least one of _WRITERS
_READERS = (USED + READ, UNSHARED + WRITE, UNSHARED + RESIZE)
_WRITERS = (USED + WRITE, USED + RESIZE, UNSHARED + READ)
_WITHOUT_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
FILE, FOLDER, LINK, OTHER_KIND = "file", "folder", "link", "other"
_FIELDS = (
    *("st_mode", "st_ino", "st_dev", "st_uid", "st_gid", "st_size", "st_blocks"),
    *("st_rdev", "st_mtime", "st_mtime_ns", "st_ctime_ns"),
)


def file_stat(path: str, follow: bool = False) -> dict[str, int]:
    """Return the status of a path as a dict."""
    status = os.stat(path, follow_symlinks=follow)
    return {field: getattr(status, field) for field in _FIELDS}


def walk(folder: str, names: list[str]) -> list[Any]:
    """Walk down from a folder to the first symbolic link.

    Returns [number of names before the link, its target], with None as target if there is no link.
    """
    for number, name in enumerate(names):
        folder = os.path.join(folder, name)
        with contextlib.suppress(OSError):  # not a link, or missing
            return [number, os.readlink(folder)]
    return [len(names), None]


def names(folder: str, max_entries: int | None = None) -> list[list[str]]:
    """Return [name, kind] of each folder entry: FILE, FOLDER, LINK or OTHER_KIND.

    Raises OSError, with E2BIG for more than ``max_entries``.
    """
    entry_list: list[list[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(entry_list) == max_entries:
                raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
            entry_list.append([entry.name, _kind(entry)])
    return entry_list


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return LINK
    if entry.is_file():
        return FILE
    return FOLDER if entry.is_dir() else OTHER_KIND


def open_checked(path: str, kinds: Collection[int] = (stat.S_IFREG, stat.S_IFBLK)) -> int | None:
    """Open a file or block device for reading; None for other types.

    The type is checked with an O_PATH descriptor, which has no side effects, before the file is
    opened.
    """
    path_fd = os.open(path, os.O_PATH)
    try:
        if stat.S_IFMT(os.fstat(path_fd).st_mode) not in kinds:
            return None
        return os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(path_fd)


def head(path: str, size: int) -> str | None:
    """Return the first bytes of a file or block device in base64; None for other types."""
    fd = open_checked(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        # virtual files of the kernel have no size; reading one may block or consume data
        empty = stat.S_ISREG(status.st_mode) and not status.st_size
        return base64.b64encode(b"" if empty else file.read(size)).decode()


def flock(kind: int, byte: int) -> bytes:
    """Return the kernel's struct flock for one byte."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)


def is_locked(fd: int, byte: int) -> bool:
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, flock(fcntl.F_WRLCK, byte))
    return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)


def locked(path: str) -> bool:
    """Return whether a QEMU process holds locks on a file; False if that is unknown."""
    try:
        fd = open_checked(path, [stat.S_IFREG])
    except OSError:
        return False
    if fd is None:
        return False
    try:
        return any(
            is_locked(fd, kind + permission)
            for kind in (USED, UNSHARED)
            for permission in PERMISSIONS
        )
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(fd)


def open_read(path: str) -> tuple[None, int | None]:
    """Return (None, descriptor from :func:`open_checked`)."""
    return None, open_checked(path)


def lock_against_open(path: str) -> tuple[bool, int | None]:
    """See bounded_io.lock_against_open."""
    fd = open_checked(path, [stat.S_IFREG])
    if fd is None:
        return False, None
    try:
        for permission in PERMISSIONS:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock(fcntl.F_RDLCK, UNSHARED + permission))
        return any(is_locked(fd, USED + permission) for permission in PERMISSIONS), fd
    except OSError as exc:
        return exc.errno in (errno.EAGAIN, errno.EACCES), fd


def lock_against_write(path: str) -> tuple[tuple[bool, str | None], int | None]:
    """See bounded_io.lock_against_write."""
    fd = open_checked(path)
    if fd is None:
        return (False, None), None
    try:
        for byte in _READERS:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock(fcntl.F_RDLCK, byte))
        return (any(is_locked(fd, byte) for byte in _WRITERS), None), fd
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES):
            return (True, None), fd
        return (False, None if exc.errno in _WITHOUT_LOCKS else exc.strerror), fd


def room(path: str) -> list[int]:
    """Return [block size in bytes, total blocks, free blocks] of a file system."""
    statistics = os.statvfs(path)
    return [statistics.f_frsize, statistics.f_blocks, statistics.f_bavail]


QUERIES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        file_stat,
        walk,
        names,
        head,
        locked,
        room,
        open_read,
        lock_against_open,
        lock_against_write,
    )
}
# queries that also return a descriptor
WITH_DESCRIPTOR = ("open_read", "lock_against_open", "lock_against_write")
# queries that open the file
OPENING_QUERIES = ("head", "locked", *WITH_DESCRIPTOR)


def _answer(line: bytes) -> tuple[dict[str, Any], int | None]:
    """Return (response, descriptor or None)."""
    query_name, *arguments = json.loads(line)
    try:
        outcome = QUERIES[query_name](*arguments)
    except OSError as exc:
        return {"error": exc.errno}, None
    answer, fd = outcome if query_name in WITH_DESCRIPTOR else (outcome, None)
    return {"answer": answer}, fd


def _serve(channel: socket.socket) -> None:
    for line in channel.makefile("rb"):
        answer, fd = _answer(line)
        text = json.dumps(answer).encode() + b"\n"
        if fd is None:
            channel.sendall(text)
        else:
            socket.send_fds(channel, [text], [fd])
            os.close(fd)


if __name__ == "__main__":
    _serve(socket.socket(fileno=0))
