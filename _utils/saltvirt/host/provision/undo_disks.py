"""Undoing the making of a disk: what we have made goes, unless somebody uses it by now."""

import contextlib
import os

from saltvirt import errors
from saltvirt.host.storage import deletion


def remove_file(path):
    """Removes a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _run(conn, path, made, guest):
    if not os.path.lexists(path):
        return
    with deletion.unused(conn, path, guest), contextlib.suppress(FileNotFoundError):
        seen = os.lstat(path)
        if made not in (None, (seen.st_dev, seen.st_ino)):
            raise errors.OperationFailed(f"{path} stays: it is another file by now")
        os.unlink(path)


def push(undo, conn, path, guest, made=True):
    """Pushes the deletion of a file that was made, or is about to be, on a Revert.

    guest: UUID of the domain that it is made for, whose definition does not count.
    """
    seen = os.lstat(path) if made else None
    inode = (seen.st_dev, seen.st_ino) if made else None
    undo.push(f"delete {path}", _run, conn, path, inode, guest)
