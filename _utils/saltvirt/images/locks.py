"""A lock between processes, which the kernel takes back when its holder dies."""

import contextlib
import fcntl
import os
import shutil
import tempfile


def private_folder(parent, prefix):
    """A new folder for root alone, and the descriptor that marks it as in use.

    What processes that died left of such folders is removed on the way.
    """
    with exclusive(os.path.join(parent, "folders.lock")):
        for name in os.listdir(parent):
            if name.startswith(prefix):
                _remove_unused(os.path.join(parent, name))
        folder = tempfile.mkdtemp(dir=parent, prefix=prefix)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX)
    return folder, fd


def _remove_unused(folder):
    with contextlib.suppress(OSError):  # it is in use, or gone
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)


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
