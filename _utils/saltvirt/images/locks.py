"""A lock between processes, which the kernel takes back when its holder dies."""

import contextlib
import fcntl
import os


@contextlib.contextmanager
def exclusive(path):
    """Holds the lock file ``path`` for the block; waits for whoever holds it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
