"""Serialize operations on a guest of this host.

Every operation that changes a guest or its disks holds the guest's lock. The lock ends with its
process, and it names its owner. It does not exclude plain libvirt: see ``still``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from urllib.parse import quote, unquote

from saltvirt import errors, settings
from saltvirt.host import hooks
from saltvirt.system import file_lock, paths, private_folder

FOLDER = paths.LOCKS
# most operations take less time; the error names a longer one
WAIT_S = 20
_POLL_S = 0.2
_MAX_NAME_CHARS = 200

_thread_locks = threading.local()


def folder(get: settings.Get) -> str:
    """Return the folder of the locks. get: Salt's ``config.get``."""
    return os.path.join(settings.folder(get, "lock", FOLDER), "guests")


@contextlib.contextmanager
def acquire(
    lock_dir: str, operation: str, *names: str, wait_s: float | None = None
) -> Iterator[None]:
    """Hold the guests' locks for the block; the same thread may acquire them again inside it.

    lock_dir: see :func:`folder`. operation: is shown to those who wait. Waits for ``wait_s``
    (default WAIT_S), then raises OperationFailed with the owner of the lock and since when. Raises
    Refused if a feature does not allow the operation for a guest.
    """
    deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    with contextlib.ExitStack() as stack:
        for name in sorted({str(name) for name in names}):
            stack.enter_context(_acquire_one(lock_dir, operation, name, deadline))
            for feature in hooks.installed():
                feature.check_operation(operation, name)
        yield


@contextlib.contextmanager
def _acquire_one(lock_dir: str, operation: str, name: str, deadline: float) -> Iterator[None]:
    path = os.path.join(
        str(lock_dir), f"{quote(name, '', errors='surrogatepass')[:_MAX_NAME_CHARS]}.lock"
    )
    held_paths = _thread_locks.__dict__.setdefault("paths", set())
    if path in held_paths:
        yield
        return
    try:
        private_folder.ensure(os.path.dirname(path))
        handle = _wait_for_lock(path, name, deadline)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot lock {name}: {path}: {exc.strerror}") from exc
    try:
        held_paths.add(path)
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        with contextlib.suppress(OSError):  # the disk is full: the error will not name the owner
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{operation}, process {os.getpid()}, since {since}".encode(), 0)
        yield
    finally:
        held_paths.discard(path)
        os.unlink(path)
        os.close(handle)


def owners(lock_dir: str) -> dict[str, str]:
    """Return {guest: owner of its lock} for all locks that are held."""
    by_guest = {}
    with contextlib.suppress(FileNotFoundError):
        for file in sorted(os.listdir(lock_dir)):
            with contextlib.suppress(FileNotFoundError):
                owner = _owner(os.path.join(lock_dir, file))
                if owner:
                    by_guest[unquote(file.removesuffix(".lock"))] = owner
    return by_guest


def _owner(path: str) -> str | None:
    """Return the owner of a lock, or None."""
    with open(path, encoding="utf-8", errors="replace") as file:
        if file_lock.lock(file, shared=True):
            return None
        return file.read(300) or "an operation that has just started"


def _wait_for_lock(path: str, name: str, deadline: float) -> int:
    """Return the descriptor of the locked file."""
    while True:
        handle, owner = _try_lock(path)
        if handle is not None:
            return handle
        if time.monotonic() >= deadline:
            raise errors.OperationFailed(
                f"{name}: another operation is in progress on this host, {owner}: wait for it"
            )
        time.sleep(_POLL_S)


def _try_lock(path: str) -> tuple[int | None, str | None]:
    """Return (descriptor of the locked file or None, owner)."""
    handle = file_lock.acquire(path)
    if handle is None:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            return None, file.read(300).decode(errors="replace")
        return None, ""
    if file_lock.is_current(handle, path):
        return handle, None
    os.close(handle)
    return None, ""
