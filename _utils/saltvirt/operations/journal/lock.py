"""One operation at a time on a guest, on a deployment, and on the guests of a host that is drained,
on this master."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from saltvirt import errors, sanitize
from saltvirt.system import file_lock

# the longest name of a file, in bytes
_MAX_NAME_BYTES = 255


def _path(opts: file_lock.Opts, name: str) -> Path:
    """The guest's lock. The name may be what a host calls a guest, of whatever origin."""
    if not name or "/" in name or name[0] == "." or _is_unsafe_name(name):
        raise errors.InvalidInput(f"{name!r} cannot be a guest's name")
    return Path(opts["cachedir"]) / "virt" / "locks" / name


def _is_unsafe_name(name: str) -> bool:
    """Whether no file is to have the name."""
    return len(name.encode(errors="replace")) > _MAX_NAME_BYTES or not name.isprintable()


@contextlib.contextmanager
def guest(opts: file_lock.Opts, name: str, purpose: str) -> Iterator[None]:
    """Holds the guest's lock for the block.

    opts: the master's configuration (``cachedir``). purpose: the operation, for the message
    that another caller gets. The lock goes with the process, however it ends.
    Raises OperationFailed at once, with who it is, when another operation on that guest is
    under way.
    """
    path = _path(opts, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = file_lock.take(path, purpose) or _retry(path, purpose)
    if handle is None:
        raise _busy_error(name, file_lock.owner(path))
    try:
        yield
    finally:
        os.close(handle)


def _retry(path: Path, purpose: str) -> int | None:
    """Somebody may only have looked whether it is held."""
    time.sleep(0.05)
    return file_lock.take(path, purpose)


def guest_owner(opts: file_lock.Opts, name: str) -> str | None:
    """Who works on the guest on this master, or None."""
    path = _path(opts, name)
    return file_lock.owner(path) if file_lock.is_taken(path) else None


def refuse_taken(opts: file_lock.Opts, name: str) -> None:
    """Raises what :func:`guest` would raise now."""
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
    """Holds the lock of what is evacuated from a host for the block. name: of a hypervisor of this
    master. stop: is called with the owner of a lock that is held, and raises unless that operation
    is to be stopped; it is waited for then, for ``virt:queue_timeout`` at most.

    Raises OperationFailed, with the owner, where the lock is held and not waited for, or for too
    long.
    """
    path = _host_path(opts, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = file_lock.take(path, purpose) or _retry(path, purpose)
    if handle is None:
        owner = file_lock.owner(path)
        if stop is None:
            raise drained_error(name, owner)
        stop(owner)
        _stop_path(opts, name).touch()
        handle = file_lock.wait(
            opts, lambda: file_lock.take(path, purpose), lambda: file_lock.owner(path)
        )
    try:
        _stop_path(opts, name).unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _stop_path(opts: file_lock.Opts, host: str) -> Path:
    return _host_path(opts, f".{host}.stop")


def is_stopped(opts: file_lock.Opts, host: str) -> bool:
    """Whether who holds the host's lock is to end, because another operation waits for it."""
    return _stop_path(opts, host).exists()


def host_owner(opts: file_lock.Opts, name: str) -> str | None:
    """Who holds the lock of what is evacuated from the host, or None."""
    path = _host_path(opts, name)
    return file_lock.owner(path) if file_lock.is_taken(path) else None


def refuse_drained(opts: file_lock.Opts, name: str) -> None:
    """Raises what :func:`host` would raise now."""
    owner = host_owner(opts, name)
    if owner:
        raise drained_error(name, owner)


def drained_error(host: str, owner: str) -> errors.OperationFailed:
    """What refuses an operation on the host's guests while the owner has its lock."""
    return errors.OperationFailed(
        f"{host}: {owner}, is under way; wait for it, or end it: salt-run virt.restore {host}"
    )


@contextlib.contextmanager
def deployment(opts: file_lock.Opts, name: str) -> Iterator[None]:
    """One at a time deploys the set of this name on this master, whoever asks for it: the others
    wait. Those of other names are at work meanwhile.

    Raises OperationFailed, with who it is, when another takes longer than ``virt:queue_timeout``.
    """
    folder = Path(opts["cachedir"]) / "virt" / "deployments"
    folder.mkdir(parents=True, exist_ok=True)
    # users call it as they like, so the name is none for a file
    path = folder / hashlib.sha256(name.encode(errors="replace")).hexdigest()
    purpose = f"virt.deployed {sanitize.one_line(name)}"
    handle = file_lock.wait(
        opts, lambda: file_lock.take(path, purpose), lambda: file_lock.owner(path)
    )
    try:
        yield
    finally:
        os.close(handle)
