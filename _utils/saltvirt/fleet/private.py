"""Files of the master that only root, or the user of the master, can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets


def write(path: str, text: str) -> None:
    """Write the file atomically. Creates its folder."""
    os.close(write_locked(path, text))


def write_locked(path: str, text: str) -> int:
    """Write the file atomically. Return it open, and locked since before it was renamed."""
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
