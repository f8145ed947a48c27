"""Tickets: one use within 30 seconds to connect to one guest's display or serial port, or to watch
the cloud as a page does.

The browser generates a secret and passes only its SHA-256, so that the arguments of a job, events,
returns and file names are of no use to others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import errors, units
from saltvirt.console.master.guest_connection import GuestConnection
from saltvirt.fleet import private
from saltvirt.schema import Message
from saltvirt.system import atomic_file, file_lock

LIFE_S = 30
# lifetime of a ticket in preparation, while the guest's hypervisor is asked
_ISSUE_TIMEOUT_S = 300
# maximum number of unused tickets: per user, in total
MAX_PER_USER, MAX_TICKETS = 8, 200
_DIGEST, _SECRET = re.compile("[0-9a-f]{64}"), re.compile("[0-9A-Za-z_-]{32,128}")
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Ticket(Message):
    """A ticket, in preparation until it has a connection or is for a page.

    user: for whom it was issued; None: a user with access to the master. expires_at: in seconds
    since 1970. connection: to a guest. is_page: it allows a page to watch the cloud.
    """

    user: str | None
    expires_at: float
    connection: GuestConnection | None = None
    is_page: bool = False

    @property
    def is_ready(self) -> bool:
        return self.is_page or self.connection is not None


def digest(secret: str) -> str:
    """The digest of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def folder(opts: dict[str, Any]) -> Path:
    """The folder of tickets, which only the master's user can read."""
    return Path(opts["cachedir"]) / "virt" / "tickets"


@contextlib.contextmanager
def issuing(
    opts: dict[str, Any], user: str | None, secret_digest: object
) -> Iterator[list[GuestConnection]]:
    """Issue a ticket when the block ends: for the connection that the block appends to the list, or
    for a page if the list is empty.

    Raises InvalidInput, AlreadyExists, and OperationFailed if there are too many tickets.
    """
    if not isinstance(secret_digest, str) or not _DIGEST.fullmatch(secret_digest):
        raise errors.InvalidInput(
            "digest must be the SHA-256 of a secret, as 64 hexadecimal digits, not "
            f"{units.short_repr(secret_digest)}"
        )
    directory = folder(opts)
    _reserve(directory, user, secret_digest)
    connections: list[GuestConnection] = []
    try:
        yield connections
        connection = connections[0] if connections else None
        ticket = Ticket(user, time.time() + LIFE_S, connection, is_page=not connections)
        private.write(str(directory / secret_digest), json.dumps(ticket.to_answer()))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(directory / secret_digest)
        raise


def redeem(opts: dict[str, Any], secret: object) -> Ticket:
    """Return the ticket of a secret and invalidate it. Raises Denied, with the same message for
    every invalid secret."""
    denied = errors.Denied("the ticket is invalid: it was used, or is older than 30 s")
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        raise denied
    directory = folder(opts)
    try:
        with atomic_file.claim(directory / digest(secret)) as claimed_path:
            ticket = _read(Path(claimed_path))
    except OSError:
        raise denied from None
    if ticket is None or not ticket.is_ready or not _is_good(ticket):
        raise denied
    return ticket


def _is_good(ticket: Ticket) -> bool:
    """Whether the ticket has not expired and, if the clock was set back, is not from the future."""
    return 0 <= ticket.expires_at - time.time() <= (LIFE_S if ticket.is_ready else _ISSUE_TIMEOUT_S)


def _reserve(directory: Path, user: str | None, secret_digest: str) -> None:
    """Write a ticket in preparation."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not directory.is_dir() or directory.is_symlink() or status.st_uid != os.geteuid():
        raise errors.OperationFailed(
            f"{directory} is not a folder that only this user can access: remove it"
        )
    os.chmod(directory, 0o700)
    lock = file_lock.acquire(directory / ".lock", timeout_s=math.inf)  # held for moments
    assert lock is not None
    try:
        existing = _sweep(directory)
        if secret_digest in existing:
            raise errors.AlreadyExists("a ticket for this secret exists: use another secret")
        user_count = sum(pending.user == user for pending in existing.values())
        if user_count >= MAX_PER_USER or len(existing) >= MAX_TICKETS:
            raise errors.OperationFailed(
                f"there are {(user_count if user_count >= MAX_PER_USER else len(existing))} unused "
                f"tickets: wait {LIFE_S} s"
            )
        ticket = Ticket(user, time.time() + _ISSUE_TIMEOUT_S)
        private.write(str(directory / secret_digest), json.dumps(ticket.to_answer()))
    finally:
        os.close(lock)


def _sweep(directory: Path) -> dict[str, Ticket]:
    """The valid tickets; removes the others."""
    valid: dict[str, Ticket] = {}
    for name in os.listdir(directory):
        if name == ".lock":
            continue
        ticket = _read(directory / name) if _DIGEST.fullmatch(name) else None
        if ticket is not None and _is_good(ticket):
            valid[name] = ticket
        elif ticket is not None or _is_old(directory / name):
            with contextlib.suppress(OSError):
                os.unlink(directory / name)
    return valid


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.lstat().st_mtime > _ISSUE_TIMEOUT_S
    return False


def _read(path: Path) -> Ticket | None:
    """The ticket in a file, or None if the file holds none."""
    with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, encoding="utf-8") as file:
            return Ticket.from_answer(json.loads(file.read(_MAX_BYTES)), str(path))
    return None
