"""Disks that must not change while they are copied.

QEMU locks bytes of a disk file for its own accesses and for those that it tolerates. This module
locks a file like a reader that tolerates no writer, so a QEMU process that wants to write does not
start. libvirt's QEMU does not see locks on devices, and some file systems have no locks: there,
writes are detected afterwards.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from saltvirt import errors
from saltvirt.system import bounded_io

# (mtime, size) of a file; (number of writes, sectors written) of a device
WriteState = tuple[int | str, int | str]


def _write_state(fd: int) -> WriteState | None:
    """Return a state that changes with each write to the file or device; None if unknown."""
    status = os.fstat(fd)
    if not stat.S_ISBLK(status.st_mode):
        return status.st_mtime_ns, status.st_size
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    try:
        with open(f"/sys/dev/block/{major}:{minor}/stat", encoding="ascii") as file:
            numbers = file.read().split()
    except FileNotFoundError:
        return None
    return numbers[4], numbers[6]  # writes, sectors written


def is_open(path: str) -> bool:
    """Return whether a QEMU process has the file open.

    This includes QEMU of another libvirt, of a user, or of another host if the file system supports
    locks. Devices are not detected. Raises bounded_io.StorageTimeout.
    """
    return bounded_io.locked(path)


@contextlib.contextmanager
def prevent_open(path: str) -> Iterator[bool]:
    """Prevent QEMU from opening the file within the block; yield whether it is already open.

    Use this before deleting a file, with any of its names. A device, or a file on a file system
    without locks, counts as not open. Raises bounded_io.StorageTimeout.
    """
    try:
        already_open, fd = bounded_io.lock_against_open(path)
    except bounded_io.StorageTimeout:
        raise
    except OSError:  # root squashing on a file server, or a deleted file
        yield is_open(path)
        return
    try:
        yield already_open
    finally:
        if fd is not None:
            os.close(fd)


class UnchangedDisks:
    """A context manager that keeps QEMU from writing to the disks of a guest.

    guest: the name of the guest, or None for images. Raises OperationFailed if a disk is open for
    writing.
    """

    def __init__(self, guest: str | None, paths: Iterable[str]) -> None:
        self.guest, self.paths = guest, list(dict.fromkeys(paths))
        self._open: dict[str, tuple[int, WriteState | None]] = {}

    def __enter__(self) -> UnchangedDisks:
        try:
            for path in self.paths:
                self._hold(path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for fd, _ in self._open.values():
            os.close(fd)
        self._open = {}

    def _hold(self, path: str) -> None:
        try:
            (is_writable, reason), fd = bounded_io.lock_against_write(path)
        except OSError as exc:
            raise errors.OperationFailed(f"cannot read {path}: {exc.strerror}") from exc
        if fd is None:
            raise errors.OperationFailed(f"{path} is neither a file nor a block device")
        self._open[path] = fd, _write_state(fd)
        if reason:
            raise errors.OperationFailed(f"cannot lock {path}: {reason}")
        if is_writable:
            raise errors.OperationFailed(
                f"{self._label(path)} is open for writing: stop the program that writes to it first"
            )

    def check(self) -> None:
        """Raise OperationFailed if a disk was written to within the block."""
        for path, (fd, previous) in self._open.items():
            if _write_state(fd) != previous:
                raise errors.OperationFailed(
                    f"{self._label(path)} was written to during the copy; the copy was deleted: "
                    f"stop {'the guest' if self.guest else 'the program that writes to it'} and "
                    "try again"
                )

    def _label(self, path: str) -> str:
        return f"{path} of {self.guest}" if self.guest else path
