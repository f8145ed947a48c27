"""Open regular files and block devices for reading, and nothing else.

A path may come from a definition, a header or a pool. It may be a FIFO, which would block until a
writer opens it, or a device that acts when it is opened, such as a watchdog or a tape.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from saltvirt import errors
from saltvirt.system import bounded_io


def is_storage(mode: int) -> bool:
    """Whether the mode is that of a regular file or a block device."""
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


def refused(path: str) -> errors.ImageError:
    """The error for any other kind of file."""
    return errors.ImageError(f"{path} is neither a regular file nor a block device")


def descriptor(path: str) -> int:
    """A descriptor for reading. Raises OSError, and ImageError for any other kind of file."""
    try:
        fd = bounded_io.open_read(path)
    except (ValueError, TypeError):  # a NUL in it, or no path at all
        raise refused(repr(path)) from None
    if fd is None:
        raise refused(path)
    return fd


def open_for_reading(path: str) -> BinaryIO:
    """The file, opened for reading as bytes; see :func:`descriptor`."""
    return os.fdopen(descriptor(path), "rb")


def head(path: str, size: int) -> bytes:
    """The first bytes of a file, with a timeout. Raises the errors of :func:`descriptor`."""
    try:
        data = bounded_io.head(path, size)
    except ValueError:
        raise refused(repr(path)) from None
    if data is None:
        raise refused(path)
    return data
