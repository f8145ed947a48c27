"""Write files atomically: a file gets its name when it is complete; no existing file is opened,
followed or written to. Also open existing files for reading.

A file and its name are on disk when a function returns, unless the caller passes durable=False for
content that need not survive a power failure.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import IO

from saltvirt import errors, units
from saltvirt.system import file_lock

MODE = 0o600

FilePath = str | os.PathLike[str]
# (uid, gid)
Owner = tuple[int, int]


class NotDurable(OSError):
    """A file was replaced, but may not survive a power failure."""


def write(
    path: FilePath, data: bytes, *, mode: int = MODE, owner: Owner | None = None,
    durable: bool = True, part: str | None = None, dir_fd: int | None = None,
) -> None:  # fmt: skip
    """Create or replace a file; a link itself is replaced, not its target.

    owner: None for the process' own. part: the temporary path, default ``PATH.new``; use
    :func:`unique_part` if several processes may write the file at the same time. dir_fd: descriptor
    of the folder, for a path without a slash. Raises OSError, and then leaves no temporary file.
    """
    part = part or f"{os.fspath(path)}.new"
    os.close(stage(part, data, mode=mode, owner=owner, durable=durable, dir_fd=dir_fd))
    _rename_part(part, path, durable, dir_fd)


def write_locked(path: FilePath, data: bytes) -> int:
    """Create or replace a file. Return its descriptor, locked since before it got its name. Raises
    OSError."""
    part = unique_part(path)
    handle = stage(part, data, lock=True)
    try:
        _rename_part(part, path, True, None)
    except BaseException:
        os.close(handle)
        raise
    return handle


def unique_part(path: FilePath) -> str:
    """Return a new hidden temporary path in the folder of a file."""
    return os.path.join(os.path.dirname(os.fspath(path)), f".{secrets.token_hex(8)}")


def stage(
    part: str, data: bytes, *, mode: int = MODE, owner: Owner | None = None, durable: bool = True,
    dir_fd: int | None = None, lock: bool = False,
) -> int:  # fmt: skip
    """Write a file under its temporary path, for :func:`rename`, and return its descriptor.

    A file that a killed process left there is removed. lock: lock the file before it is written.
    Raises OSError, and then leaves no file.
    """
    handle = _create_part(part, dir_fd)
    try:
        if lock:
            file_lock.lock(handle, timeout_s=math.inf)  # sweepers hold it for an instant
        if mode != MODE:
            os.fchmod(handle, mode)
        if owner is not None:
            os.fchown(handle, *owner)
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        if durable:
            os.fsync(handle)
    except BaseException:
        os.close(handle)
        discard(part, dir_fd)
        raise
    return handle


def rename(
    source: FilePath, target: FilePath, *, durable: bool = True, dir_fd: int | None = None
) -> None:
    """Rename a file within its folder; replace an existing target. Raises NotDurable if only the
    flush of the folder failed, and OSError."""
    os.replace(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    if durable:
        try:
            sync(os.path.dirname(target) or ".", dir_fd)
        except OSError as exc:
            if exc.errno == errno.EINVAL:  # the file system cannot flush folders
                return
            raise NotDurable(exc.errno, exc.strerror, os.fspath(target)) from exc


def sync(path: FilePath, dir_fd: int | None = None) -> None:
    """Flush a file, device or folder to disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def claim(path: FilePath) -> Iterator[str]:
    """Take a file away from other processes for the block, at the end of which it is removed; yield
    its present path. Raises FileNotFoundError if another process has taken it."""
    claimed_path = unique_part(path)
    os.rename(path, claimed_path)
    try:
        yield claimed_path
    finally:
        discard(claimed_path)


def discard(part: FilePath, dir_fd: int | None = None) -> None:
    """Remove a temporary file, if possible."""
    with contextlib.suppress(OSError):
        os.unlink(part, dir_fd=dir_fd)


def _create_part(part: str, dir_fd: int | None) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(part, flags, MODE, dir_fd=dir_fd)
    except FileExistsError:
        os.unlink(part, dir_fd=dir_fd)
        return os.open(part, flags, MODE, dir_fd=dir_fd)


def _rename_part(part: str, path: FilePath, durable: bool, dir_fd: int | None) -> None:
    try:
        rename(part, path, durable=durable, dir_fd=dir_fd)
    except NotDurable:
        raise
    except BaseException:
        discard(part, dir_fd)
        raise


@contextlib.contextmanager
def create(path: str, overwrite: bool) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to a new file, which appears under its name at the end of the block if
    no exception was raised. overwrite: replace an existing file or link, not the link's target.
    Raises AlreadyExists, InvalidInput, OperationFailed."""
    with _new_file(path, overwrite) as (dir_fd, name):
        part = f".salt-virt-{secrets.token_hex(8)}"
        with _translated_errors(path):
            handle = _create_part(part, dir_fd)
        try:
            with open(handle, "wb", buffering=0) as file:

                def write(data: bytes) -> None:
                    with _translated_errors(path):
                        while data:
                            data = data[file.write(data) :]

                yield write
                with _translated_errors(path):
                    os.fsync(handle)
            _publish(dir_fd, part, name, path, overwrite)
        except BaseException:
            discard(part, dir_fd)
            raise


@contextlib.contextmanager
def _new_file(path: str, overwrite: bool) -> Iterator[tuple[int, str]]:
    """(the open folder of a file that :func:`create` may create, the file's name)."""
    folder, name = os.path.split(os.path.abspath(path))
    if not name or "\0" in path:
        raise errors.InvalidInput(f"{units.short_repr(path)} is not the path of a file")
    with _folder(folder) as dir_fd:
        _refuse_existing(dir_fd, name, path, overwrite)
        yield dir_fd, name


def require_new(path: str, overwrite: bool) -> None:
    """Raise what :func:`create` would raise for this path."""
    with _new_file(path, overwrite):
        pass


@contextlib.contextmanager
def open_existing(path: str) -> Iterator[IO[bytes]]:
    """Open a regular file for reading. Raises InvalidInput for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise errors.InvalidInput(f"{units.short_repr(path)} cannot be read: {reason}") from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise errors.InvalidInput(f"{units.short_repr(path)} is not a regular file")
    with open(handle, "rb") as file:
        yield file


@contextlib.contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _failure(path, exc) from exc


@contextlib.contextmanager
def _folder(folder: str) -> Iterator[int]:
    """Open a folder. Raises InvalidInput if it is not a folder, or is a link."""
    try:
        dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise errors.InvalidInput(
            f"{units.short_repr(folder)} is not a folder: {exc.strerror}"
        ) from exc
    try:
        yield dir_fd
    finally:
        os.close(dir_fd)


def _refuse_existing(dir_fd: int, name: str, path: str, overwrite: bool) -> None:
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise _failure(path, exc) from exc
    if stat.S_ISDIR(status.st_mode):
        raise errors.InvalidInput(f"{units.short_repr(path)} is a folder: name the new file in it")
    if not overwrite:
        raise _exists_error(path)


def _publish(dir_fd: int, part: str, name: str, path: str, overwrite: bool) -> None:
    try:
        if overwrite:
            rename(part, name, dir_fd=dir_fd)
            return
        os.link(part, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        os.unlink(part, dir_fd=dir_fd)
        sync(".", dir_fd)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as exc:
        raise _failure(path, exc) from exc


def _exists_error(path: str) -> errors.AlreadyExists:
    return errors.AlreadyExists(f"{units.short_repr(path)} exists; overwrite=True replaces it")


def _failure(path: str, exc: OSError) -> errors.OperationFailed:
    return errors.OperationFailed(
        f"{units.short_repr(path)} cannot be written: {exc.strerror or exc}"
    )
