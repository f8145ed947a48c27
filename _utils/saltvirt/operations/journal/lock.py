"""Locks of this master: one operation at a time on a guest, on a deployment, and on the guests of a
host that is being drained."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from saltvirt import errors, sanitize
from saltvirt.system import file_lock

# maximum length of a file name in bytes
_MAX_NAME_BYTES = 255


def _path(opts: file_lock.Opts, name: str) -> Path:
    """Return the lock file of a guest. The name can be any that a host reports."""
    if not name or "/" in name or name[0] == "." or _is_unsafe_name(name):
        raise errors.InvalidInput(f"{name!r} cannot be a guest's name")
    return Path(opts["cachedir"]) / "virt" / "locks" / name


def _is_unsafe_name(name: str) -> bool:
    """Return whether the name is unsuitable for a file."""
    return len(name.encode(errors="replace")) > _MAX_NAME_BYTES or not name.isprintable()


@contextlib.contextmanager
def guest(opts: file_lock.Opts, name: str, purpose: str) -> Iterator[None]:
    """Hold the guest's lock for the block.

    opts: the master's configuration (``cachedir``). purpose: the operation, for the message to
    other callers. The lock ends with the process. Raises OperationFailed at once, with the owner,
    if another operation on the guest is running.
    """
    path = _path(opts, name)
    with _take(path, purpose) as is_taken:
        if not is_taken:
            raise _busy_error(name, file_lock.owner(path))
        yield


@contextlib.contextmanager
def _take(path: Path, purpose: str) -> Iterator[bool]:
    """Hold the lock file for the block, and yield True; False if an operation holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = file_lock.take(path, purpose)
    if handle is None:  # another process may only have checked whether the lock is held
        time.sleep(0.05)
        handle = file_lock.take(path, purpose)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def guest_owner(opts: file_lock.Opts, name: str) -> str | None:
    """Return the operation of this master on the guest, or None."""
    path = _path(opts, name)
    return file_lock.owner(path) if file_lock.is_taken(path) else None


def refuse_taken(opts: file_lock.Opts, name: str) -> None:
    """Raise what :func:`guest` would raise now."""
    owner = guest_owner(opts, name)
    if owner:
        raise _busy_error(name, owner)


def _busy_error(name: str, owner: str) -> errors.OperationFailed:
    return errors.OperationFailed(f"{name}: {owner}, is under way; wait for it")


def _host_path(opts: file_lock.Opts, host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "evacuations" / host


@contextlib.contextmanager
def host(
    opts: file_lock.Opts, name: str, purpose: str, stop: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Hold the lock for draining or restoring a host for the block. name: a hypervisor of this
    master. stop: called with the owner if the lock is held, and raises unless that operation is to
    be stopped; then its end is awaited, at most ``virt:queue_timeout``.

    Raises OperationFailed, with the owner, if the lock is held and not awaited, or after the
    timeout.
    """
    path = _host_path(opts, name)
    with contextlib.ExitStack() as held:
        if not held.enter_context(_take(path, purpose)):
            owner = file_lock.owner(path)
            if stop is None:
                raise drained_error(name, owner)
            stop(owner)
            _stop_path(opts, name).touch()
            held.enter_context(file_lock.held(opts, path, purpose))
        _stop_path(opts, name).unlink(missing_ok=True)
        yield


def _stop_path(opts: file_lock.Opts, host: str) -> Path:
    return _host_path(opts, f".{host}.stop")


def is_stopped(opts: file_lock.Opts, host: str) -> bool:
    """Return whether the owner of the host's lock has to stop, because another operation waits for
    it."""
    return _stop_path(opts, host).exists()


def host_owner(opts: file_lock.Opts, name: str) -> str | None:
    """Return the owner of the lock for draining the host, or None."""
    path = _host_path(opts, name)
    return file_lock.owner(path) if file_lock.is_taken(path) else None


def refuse_drained(opts: file_lock.Opts, name: str) -> None:
    """Raise what :func:`host` would raise now."""
    owner = host_owner(opts, name)
    if owner:
        raise drained_error(name, owner)


def drained_error(host: str, owner: str) -> errors.OperationFailed:
    """Return the error for an operation on the host's guests while the lock is held."""
    return errors.OperationFailed(
        f"{host}: {owner}, is under way; wait for it, or end it: salt-run virt.restore {host}"
    )


def deployment(opts: file_lock.Opts, name: str) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a deployment of this name on this master; wait for others. Deployments of
    other names can run concurrently.

    Raises OperationFailed, with the owner, after ``virt:queue_timeout``.
    """
    # users choose any name, so it is not used as a file name
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    path = Path(opts["cachedir"]) / "virt" / "deployments" / digest
    return file_lock.held(opts, path, f"virt.deployed {sanitize.one_line(name)}")
