"""Locks between processes, which the kernel releases if their holder dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host import paths
from saltvirt.system import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = paths.RUN
_PAUSE_S = 0.05
_MAX_PAUSE_S = 1
TIMEOUT_S = 900


def private(folder: str) -> str:
    """The folder, created if it is missing, which only this user can write to.

    Raises OperationFailed for a link and for a folder that others can write to.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & 0o022:
        raise errors.OperationFailed(
            f"{folder} is a link, or others can write to it: remove it; it is created again"
        )
    return folder


def runtime_folder() -> str:
    """The folder for temporary data, to be created by ``private``: in memory for root, in the
    system's temporary folder for other users."""
    if os.geteuid() == 0:
        return RUN
    return os.path.join(tempfile.gettempdir(), f"salt-virt-{os.geteuid()}")


def private_folder(parent: str, prefix: str) -> tuple[str, int]:
    """A new folder for root only, and the descriptor that marks it as in use.

    Removes such folders of processes that died.
    """
    with exclusive(os.path.join(private(parent), "folders.lock")):
        _sweep(parent, prefix)
        folder = tempfile.mkdtemp(dir=parent, prefix=prefix)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        file_lock.lock(fd)
    return folder, fd


@contextlib.contextmanager
def temporary_folder(parent: str, prefix: str) -> Iterator[str]:
    """A private_folder for the block. If this process is killed, a later one removes it."""
    folder, in_use = private_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(in_use)


def sweep(parent: str, prefix: str) -> None:
    """Remove such folders of processes that died."""
    with exclusive(os.path.join(private(parent), "folders.lock")):
        _sweep(parent, prefix)


def _sweep(parent: str, prefix: str) -> None:
    for name in os.listdir(parent):
        if name.startswith(prefix):
            _remove_unused(os.path.join(parent, name))


def _remove_unused(folder: str) -> None:
    with contextlib.suppress(OSError):  # it is in use, or gone
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if file_lock.lock(fd):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


@contextlib.contextmanager
def exclusive(
    path: str, timeout_s: float = TIMEOUT_S, progress: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold the lock file ``path`` for the block, after waiting for its holder.

    progress: called while waiting; returns a value that changes while the holder makes progress.
    ``timeout_s`` counts from its last change. Raises OperationFailed, which names the holder, after
    the timeout.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = _open(path)
    try:
        _wait(fd, path, timeout_s, progress or (lambda: None))
        yield
    finally:
        os.close(fd)


def _open(path: str) -> int:
    """Open the lock file itself, never through a link or a second name."""
    try:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot open the lock {path}: {exc.strerror}") from exc
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(fd)
        raise errors.OperationFailed(
            f"the lock {path} is not a regular file with a single name: remove it"
        )
    return fd


def _wait(fd: int, path: str, timeout_s: float, progress: Callable[[], object]) -> None:
    last_progress, end, pause = progress(), time.monotonic() + timeout_s, _PAUSE_S
    while True:
        if file_lock.lock(fd):
            return
        now = progress()
        if now != last_progress:
            last_progress, end = now, time.monotonic() + timeout_s
        if time.monotonic() > end:
            raise errors.OperationFailed(
                f"waited {timeout_s} s for the lock {path}, which {holder(fd)} holds: end "
                "that process, or try again later"
            )
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_S)


def holder(fd: int) -> str:
    """A description of the process that holds the lock of an open file, from the kernel."""
    status = os.fstat(fd)
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as table:
        for fields in (line.split() for line in table):
            lock_id = fields[5].split(":") if fields[1] == "FLOCK" else ()
            if len(lock_id) == 3 and int(lock_id[2]) == status.st_ino and fields[4].isdigit():
                return f"process {fields[4]} ({_command(fields[4])})"
    return "another process"


def _command(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command_line = file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        return "".join(char for char in command_line if char.isprintable())[:80] or "ended"
    return "ended"
