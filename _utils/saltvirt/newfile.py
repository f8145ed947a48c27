"""A new file of this machine, for root's eyes alone, that gets its name when it is whole: nothing
that is there is opened, followed or written to. And one that is there, to be read.
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
def new(path: str, overwrite: bool) -> Iterator[Callable[[bytes], object]]:
    """What writes to it; it is there, under its name, at the end of the block, where that raised
    nothing. overwrite: what has this name goes, a link and not what it names. Raises AlreadyExists,
    InvalidInput, OperationFailed."""
    folder, name = os.path.split(os.path.abspath(path))
    if not name or "\0" in path:
        raise errors.InvalidInput(f"{units.shown(path)} is not the path of a file")
    with _folder(folder) as place:
        _refuse_there(place, name, path, overwrite)
        part = f".salt-virt-{secrets.token_hex(8)}"
        try:
            handle = os.open(
                part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE, dir_fd=place
            )
        except OSError as exc:
            raise _failed(path, exc) from exc
        try:
            with open(handle, "wb", buffering=0) as file:

                def write(data: bytes) -> None:
                    with _explained(path):
                        while data:
                            data = data[file.write(data) :]

                yield write
                with _explained(path):
                    os.fsync(handle)
            _named(place, part, name, path, overwrite)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=place)
            raise


@contextlib.contextmanager
def there(path: str) -> Iterator[IO[bytes]]:
    """A file of this machine, to be read. Raises InvalidInput for what is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise errors.InvalidInput(f"{units.shown(path)} cannot be read: {why}") from exc
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise errors.InvalidInput(f"{units.shown(path)} is no file that has content")
    with open(handle, "rb") as file:
        yield file


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _failed(path, exc) from exc


@contextlib.contextmanager
def _folder(folder: str) -> Iterator[int]:
    """It, open. Raises InvalidInput where it is none, or a link."""
    try:
        found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise errors.InvalidInput(f"{units.shown(folder)} is not a folder: {exc.strerror}") from exc
    try:
        yield found
    finally:
        os.close(found)


def _refuse_there(place: int, name: str, path: str, overwrite: bool) -> None:
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise _failed(path, exc) from exc
    if stat.S_ISDIR(found.st_mode):
        raise errors.InvalidInput(f"{units.shown(path)} is a folder: name the new file in it")
    if not overwrite:
        raise _taken(path)


def _named(place: int, part: str, name: str, path: str, overwrite: bool) -> None:
    try:
        if overwrite:
            os.rename(part, name, src_dir_fd=place, dst_dir_fd=place)
            return
        os.link(part, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        os.unlink(part, dir_fd=place)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as exc:
        raise _failed(path, exc) from exc


def _taken(path: str) -> errors.AlreadyExists:
    return errors.AlreadyExists(f"{units.shown(path)} is there already; overwrite=True replaces it")


def _failed(path: str, exc: OSError) -> errors.OperationFailed:
    return errors.OperationFailed(f"{units.shown(path)} cannot be written: {exc.strerror or exc}")
