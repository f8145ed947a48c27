"""Undo of disk creation: new files are deleted unless they are in use."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.host.storage import deletion

if TYPE_CHECKING:
    import libvirt

    from saltvirt.revert import UndoStack


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _run(
    conn: libvirt.virConnect, path: str, inode: tuple[int, int] | None, guest: str | None
) -> None:
    if not os.path.lexists(path):
        return
    ignore_missing = contextlib.suppress(FileNotFoundError)
    with deletion.ensure_unused(conn, path, guest, is_own=True), ignore_missing:
        status = os.lstat(path)
        if inode not in (None, (status.st_dev, status.st_ino)):
            raise errors.OperationFailed(f"{path} was not deleted: it is a different file now")
        os.unlink(path)


def push(
    undo: UndoStack, conn: libvirt.virConnect, path: str, guest: str | None, exists: bool = True
) -> None:
    """Push the deletion of a new file, or of one about to be created, on a Revert.

    guest: UUID of the domain for which it is created, and whose definition is ignored.
    """
    status = os.lstat(path) if exists else None
    inode = (status.st_dev, status.st_ino) if status else None
    undo.push(f"delete {path}", _run, conn, path, inode, guest)
