"""Create files atomically: a new file, readable only by root, gets its name when it is complete; no
existing file is opened, followed or written to. Also open existing files for reading.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import IO

from saltvirt import errors, units

MODE = 0o600


@contextlib.contextmanager
def create(path: str, overwrite: bool) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to a new file, which appears under its name at the end of the block if
    no exception was raised. overwrite: replace an existing file or link, not the link's target.
    Raises AlreadyExists, InvalidInput, OperationFailed."""
    folder, name = os.path.split(os.path.abspath(path))
    if not name or "\0" in path:
        raise errors.InvalidInput(f"{units.short_repr(path)} is not the path of a file")
    with _folder(folder) as dir_fd:
        _refuse_existing(dir_fd, name, path, overwrite)
        part = f".salt-virt-{secrets.token_hex(8)}"
        try:
            handle = os.open(
                part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE, dir_fd=dir_fd
            )
        except OSError as exc:
            raise _failure(path, exc) from exc
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
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=dir_fd)
            raise


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
            os.rename(part, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            return
        os.link(part, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        os.unlink(part, dir_fd=dir_fd)
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
