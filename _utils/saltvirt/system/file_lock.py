"""Locked files. The kernel releases a lock when its owner's process ends in any way.

Locks of the master name their owner, and each wait for them has a timeout.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from saltvirt import errors, settings

# the master's configuration
Opts = dict[str, Any]
T = TypeVar("T")

# the default of virt:queue_timeout, the timeout of a wait for other operations
QUEUE_TIMEOUT_S = 3600
_POLL_S = 0.5
# pauses between the attempts of exclusive, and its default timeout
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.05, 1
TIMEOUT_S = 900
_MAX_OWNER_BYTES = 300


def lock(
    file: int | IO[Any], *, shared: bool = False, timeout_s: float = 0, poll_s: float = 0.02
) -> bool:
    """Lock an open file or folder. Return whether it is locked; False if another process holds it
    until the timeout. Raises OSError if the file system does not support locks."""
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(file, operation)
            return True
        except (BlockingIOError, PermissionError):
            if timeout_s <= 0 or time.monotonic() > deadline_s:
                return False
        time.sleep(poll_s)


def acquire(path: str | Path, *, shared: bool = False, timeout_s: float = 0) -> int | None:
    """Open a lock file, create it if necessary, and lock it. Return its descriptor; None if another
    process holds it until the timeout. Raises OSError, also for a link."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if lock(handle, shared=shared, timeout_s=timeout_s):
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def is_current(handle: int, path: str) -> bool:
    """Return whether the path still names the open file, which its last owner may have removed."""
    try:
        return os.stat(path).st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def queue_timeout_s(opts: Opts) -> int:
    """Return the timeout of a wait for other operations, from the master's configuration."""
    return settings.integer(settings.of_master(opts), "queue_timeout", QUEUE_TIMEOUT_S)


def take(path: Path, purpose: str) -> int | None:
    """Lock the file, write its owner into it, and return its handle; None if another process has
    locked it.

    purpose: the operation, as the text about the owner shows it.
    """
    handle = acquire(path)
    if handle is None:
        return None
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    text = f"{purpose}, process {os.getpid()} of {_user()}, since {since}".encode()
    os.pwrite(handle, text, 0)
    os.ftruncate(handle, len(text))
    return handle


def is_taken(path: Path) -> bool:
    """Return whether a process holds the lock. The check itself holds the lock for an instant, so a
    process that fails to lock the file at this moment must try twice."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not lock(handle, shared=True)
    finally:
        os.close(handle)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name on this machine
        return str(os.getuid())


def owner(path: Path) -> str:
    """Return the present or last owner of the lock, such as
    ``virt.init of web1, process 4711 of root, since …``."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_OWNER_BYTES).decode(errors="replace") or "an operation"
    except OSError:
        return "an operation"


def wait(opts: Opts, acquire: Callable[[], T | None], wait_reason: Callable[[], str]) -> T:
    """Return the result of ``acquire`` as soon as it is not None; call it twice a second.

    wait_reason: callable that returns what the operation waits for. Raises OperationFailed after
    ``virt:queue_timeout`` seconds.
    """
    timeout_s = queue_timeout_s(opts)
    deadline_s = time.monotonic() + timeout_s
    while True:
        result = acquire()
        if result is not None:
            return result
        if time.monotonic() > deadline_s:
            raise errors.OperationFailed(
                f"waited {timeout_s} s (virt:queue_timeout), and it is not its turn yet: "
                f"{wait_reason()}"
            )
        time.sleep(_POLL_S)


@contextlib.contextmanager
def held(opts: Opts, path: Path, purpose: str) -> Iterator[None]:
    """Hold the lock file for the block, after waiting for its holder. purpose: as for take. Raises
    OperationFailed, with the holder, after ``virt:queue_timeout`` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = wait(opts, lambda: take(path, purpose), lambda: owner(path))
    try:
        yield
    finally:
        os.close(handle)


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
    fd = _open_lock_file(path)
    try:
        _wait_for_holder(fd, path, timeout_s, progress or (lambda: None))
        yield
    finally:
        os.close(fd)


def _open_lock_file(path: str) -> int:
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


def _wait_for_holder(fd: int, path: str, timeout_s: float, progress: Callable[[], object]) -> None:
    last_progress, end, pause = progress(), time.monotonic() + timeout_s, _MIN_PAUSE_S
    while True:
        if lock(fd):
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
