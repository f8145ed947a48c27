"""One operation on a guest at a time, on this master."""

import contextlib
import fcntl
import os
from pathlib import Path

from saltvirt import errors


@contextlib.contextmanager
def guest(opts, name, what):
    """Holds the guest's lock for the block.

    opts: the master's configuration (``cachedir``). what: the operation, for the message
    that another caller gets. The lock goes with the process, however it ends.
    Raises OperationFailed at once when another operation on that guest is under way.
    """
    folder = Path(opts["cachedir"]) / "virt" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            other = os.read(handle, 200).decode(errors="replace") or "an operation"
            raise errors.OperationFailed(f"{name}: {other} is under way; wait for it") from exc
        os.ftruncate(handle, 0)
        os.pwrite(handle, what.encode(), 0)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def deployments(opts):
    """One deployment at a time on this master, whoever asks for it: the others wait."""
    folder = Path(opts["cachedir"]) / "virt"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "deployments.lock", "wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
