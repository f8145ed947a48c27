"""Folders that only one user can access. Those for temporary data are removed even if their process
dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.system import file_lock, paths

if TYPE_CHECKING:
    from collections.abc import Iterator


def ensure(folder: str) -> str:
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


def runtime() -> str:
    """The folder for temporary data, to be created by :func:`ensure`: in memory for root, in the
    system's temporary folder for other users."""
    if os.geteuid() == 0:
        return paths.RUN
    return os.path.join(tempfile.gettempdir(), f"salt-virt-{os.geteuid()}")


def create(parent: str, prefix: str) -> tuple[str, int]:
    """A new folder for root only, and the descriptor that marks it as in use.

    Removes such folders of processes that died.
    """
    with file_lock.exclusive(os.path.join(ensure(parent), "folders.lock")):
        _sweep(parent, prefix)
        folder = tempfile.mkdtemp(dir=parent, prefix=prefix)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        file_lock.lock(fd)
    return folder, fd


@contextlib.contextmanager
def temporary(parent: str, prefix: str) -> Iterator[str]:
    """A folder of :func:`create` for the block. If this process is killed, a later one removes
    it."""
    folder, in_use = create(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(in_use)


def sweep(parent: str, prefix: str) -> None:
    """Remove folders of :func:`create` of processes that died."""
    with file_lock.exclusive(os.path.join(ensure(parent), "folders.lock")):
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
