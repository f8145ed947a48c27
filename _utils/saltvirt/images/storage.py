"""Opens what holds a disk's data: a regular file or a block device, and nothing else.

A path may come from a definition, a header or a pool. What lies there may be a FIFO, which waits
for a writer, or a device that acts when it is opened, such as a watchdog or a tape.
"""

import os
import stat

from saltvirt import errors


def _refused(path):
    return errors.ImageError(f"{path} is neither a file nor a block device")


def descriptor(path):
    """A descriptor for reading. Raises OSError, and ImageError for anything else than storage.

    It is looked at through a descriptor that opens nothing; what was seen is then opened.
    """
    try:
        seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except ValueError:  # a NUL in it
        raise _refused(repr(path)) from None
    try:
        mode = os.fstat(seen).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise _refused(path)
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(seen)


def reading(path):
    """The file, open for reading as bytes; see :func:`descriptor`."""
    return os.fdopen(descriptor(path), "rb")
