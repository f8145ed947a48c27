"""Files of the master that root, or whoever runs the master, alone reads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets


def write(path: str, text: str) -> None:
    """Gives the file this content, all at once; makes its folder."""
    os.close(write_locked(path, text))


def write_locked(path: str, text: str) -> int:
    """The same; returns the open file, which is locked since before it had its name."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    part = os.path.join(folder, f".{secrets.token_hex(8)}")
    handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with open(handle, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.fsync(handle)
        os.replace(part, path)
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    return handle
