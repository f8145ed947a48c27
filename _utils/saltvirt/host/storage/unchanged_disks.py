"""Disks that must not change while they are copied, whoever may start their guest meanwhile.

QEMU locks bytes of a disk for what it does and for what it bears others doing. We lock as a reader
does that bears no writer: a QEMU that wants to write to the disk meanwhile does not start.
A device, whose locks do not reach into the name space of libvirt's QEMU, and a file system
without locks tell by what was written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from saltvirt import errors
from saltvirt.host.storage import bounded_io

# when it was written and how large it is; of a device how often and how much
WriteState = tuple[int | str, int | str]


def _write_state(fd: int) -> WriteState | None:
    """What tells that something was written."""
    status = os.fstat(fd)
    if not stat.S_ISBLK(status.st_mode):
        return status.st_mtime_ns, status.st_size
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    try:
        with open(f"/sys/dev/block/{major}:{minor}/stat", encoding="ascii") as file:
            numbers = file.read().split()
    except FileNotFoundError:
        return None
    return numbers[4], numbers[6]  # writes, and sectors written


def is_open(path: str) -> bool:
    """Whether a QEMU has the file open, whatever started it: also one of another libvirt, of a
    person, or of another host where the file system carries locks. Devices do not tell.

    Raises bounded.Silent where nobody answers.
    """
    return bounded_io.locked(path)


@contextlib.contextmanager
def prevent_open(path: str) -> Iterator[bool]:
    """For the block, no QEMU opens the file at all; gives whether one has it open already.

    For what is about to be deleted, by any of its names. Only of files, and where the file system
    carries locks: what cannot be held does not count as open. Raises bounded.Silent.
    """
    try:
        already_open, fd = bounded_io.lock_against_open(path)
    except bounded_io.StorageTimeout:
        raise
    except OSError:  # a server takes our root for nobody, or it is gone by now
        yield is_open(path)
        return
    try:
        yield already_open
    finally:
        if fd is not None:
            os.close(fd)


class UnchangedDisks:
    """A context manager over the paths of disks of one guest. guest: its name; None: of images.

    Raises OperationFailed when one is open to be written, naming it and the guest.
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
                f"{self._label(path)} is open for writing: stop what uses it first"
            )

    def check(self) -> None:
        """Raises OperationFailed when something was written since."""
        for path, (fd, previous) in self._open.items():
            if _write_state(fd) != previous:
                raise errors.OperationFailed(
                    f"{self._label(path)} was written to while it was copied; the copy is "
                    f"removed: stop {'the guest' if self.guest else 'what writes to it'} and do it "
                    "again"
                )

    def _label(self, path: str) -> str:
        return f"{path} of {self.guest}" if self.guest else path
