"""Locked files of this master: who holds one can be seen, and it goes with its process, however
that ends. Nobody waits for one without end."""

from __future__ import annotations

import fcntl
import getpass
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from saltvirt import errors, settings

# the master's configuration
Opts = dict[str, Any]
T = TypeVar("T")

# a wait for others ends after so long: virt:queue_timeout
QUEUE_S = 3600
_LOOK_S = 0.5
_LONGEST = 300


def limit_s(opts: Opts) -> int:
    """How long one waits for others, by the master's configuration."""
    return settings.integer(settings.of_master(opts), "queue_timeout", QUEUE_S)


def take(path: Path, what: str) -> int | None:
    """The handle of the locked file, with its owner written into it; None when another has it.

    what: the operation, for whoever wants to know.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    text = f"{what}, process {os.getpid()} of {_user()}, since {since}".encode()
    os.pwrite(handle, text, 0)
    os.ftruncate(handle, len(text))
    return handle


def is_taken(path: Path) -> bool:
    """Whether somebody holds it. Who wants it in this very instant must ask twice."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # one that has no name here
        return str(os.getuid())


def owner(path: Path) -> str:
    """Who has locked the file, or had: ``virt.init of web1, process 4711 of root, since …``."""
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST).decode(errors="replace") or "an operation"
    except OSError:
        return "an operation"


def wait(opts: Opts, look: Callable[[], T | None], why: Callable[[], str]) -> T:
    """What ``look`` returns as soon as that is not None; asks it twice a second.

    why: callable that says what is waited for. Raises OperationFailed after
    ``virt:queue_timeout`` seconds.
    """
    seconds = limit_s(opts)
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > end:
            raise errors.OperationFailed(
                f"waited {seconds} s (virt:queue_timeout), and it is not its turn yet: {why()}"
            )
        time.sleep(_LOOK_S)
