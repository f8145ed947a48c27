"""Opens what holds a disk's data: a regular file or a block device, and nothing else.

A path may come from a definition, a header or a pool. What lies there may be a FIFO, which waits
for a writer, or a device that acts when it is opened, such as a watchdog or a tape.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from saltvirt import errors
from saltvirt.host.storage import bounded_io


def is_storage(mode: int) -> bool:
    """Whether a stat's mode is that of a regular file or a block device."""
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def refused(path: str) -> errors.ImageError:
    """The error for a path where something else lies."""
    return errors.ImageError(f"{path} is neither a file nor a block device")


def descriptor(path: str) -> int:
    """A descriptor for reading. Raises OSError, and ImageError for anything else than storage."""
    try:
        fd = bounded_io.open_read(path)
    except (ValueError, TypeError):  # a NUL in it, or no path at all
        raise refused(repr(path)) from None
    if fd is None:
        raise refused(path)
    return fd


def open_for_reading(path: str) -> BinaryIO:
    """The file, open for reading as bytes; see :func:`descriptor`."""
    return os.fdopen(descriptor(path), "rb")


def head(path: str, size: int) -> bytes:
    """The first bytes of it, by a question that has an end. Raises as :func:`descriptor` does."""
    try:
        data = bounded_io.head(path, size)
    except ValueError:
        raise refused(repr(path)) from None
    if data is None:
        raise refused(path)
    return data
