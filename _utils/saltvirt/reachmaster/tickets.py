"""Tickets: whoever has one reaches one guest's screen or serial port, or sees the cloud as a page
does, once, within 30 seconds.

A ticket is a secret that the browser makes. Who asks for it tells its SHA-256 alone, so that
neither a job's arguments nor an event, a return or a file's name is worth anything to others.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import errors, units
from saltvirt.fleet import private
from saltvirt.reachmaster.way import Way
from saltvirt.wire import Fact

LIFE_S = 30
# a ticket that is being made, while the guest's hypervisor is asked
_MAKING_S = 300
# at a time; of one user, and of all
MOST_OF_USER, MOST = 8, 200
_DIGEST, _SECRET = re.compile("[0-9a-f]{64}"), re.compile("[0-9A-Za-z_-]{32,128}")
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True)
class Ticket(Fact):
    """user: for whom it was made; None: somebody who has the master. until: seconds since 1970.
    way: to a guest. is_page: it is no guest's, but to see the cloud. With neither it is being
    made."""

    user: str | None
    until: float
    way: Way | None = None
    is_page: bool = False

    @property
    def is_ready(self) -> bool:
        return self.is_page or self.way is not None


def digest(secret: str) -> str:
    """What is told of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def folder(opts: dict[str, Any]) -> Path:
    """Where they are: a folder that nobody else reads."""
    return Path(opts["cachedir"]) / "virt" / "tickets"


@contextlib.contextmanager
def making(opts: dict[str, Any], user: str | None, told: object) -> Iterator[list[Way]]:
    """Around what finds the way: its place is taken, and the ticket is good from the end of the
    block on, with the way that was put into the list; without one it is a page's. told: the digest.
    Raises InvalidInput, AlreadyExists, OperationFailed: there are too many."""
    if not isinstance(told, str) or not _DIGEST.fullmatch(told):
        raise errors.InvalidInput(
            "digest must be the SHA-256, in 64 hexadecimal digits, of a secret that is yours, not "
            f"{units.shown(told)}"
        )
    place = folder(opts)
    _begun(place, user, told)
    found: list[Way] = []
    try:
        yield found
        way = found[0] if found else None
        ticket = Ticket(user, time.time() + LIFE_S, way, is_page=not found)
        private.write(str(place / told), json.dumps(ticket.to_answer()))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(place / told)
        raise


def redeemed(opts: dict[str, Any], secret: object) -> Ticket:
    """The ticket of a secret, which is none from here on. Raises Denied, the same for each that is
    none."""
    none = errors.Denied("the ticket is not good: it was used, or is older than 30 s")
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        raise none
    place = folder(opts)
    path, mine = place / digest(secret), place / f".used-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        os.rename(path, mine)  # of two who come at once one finds it
        try:
            found = _read(mine)
        finally:
            os.unlink(mine)
    except OSError:
        raise none from None
    if found is None or not found.is_ready or not _is_good(found):
        raise none
    return found


def _is_good(ticket: Ticket) -> bool:
    """Whether it is neither too old nor, the clock having been set back, of another time."""
    return 0 <= ticket.until - time.time() <= (LIFE_S if ticket.is_ready else _MAKING_S)


def _begun(place: Path, user: str | None, told: str) -> None:
    """Takes a place for it."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = place.lstat()
    if not place.is_dir() or place.is_symlink() or status.st_uid != os.geteuid():
        raise errors.OperationFailed(f"{place} is not a folder of this user alone: remove it")
    os.chmod(place, 0o700)
    lock = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held for moments
        there = _swept(place)
        if told in there:
            raise errors.AlreadyExists("there is a ticket of this secret: make another secret")
        mine = sum(one.user == user for one in there.values())
        if mine >= MOST_OF_USER or len(there) >= MOST:
            raise errors.OperationFailed(
                f"there are {mine if mine >= MOST_OF_USER else len(there)} tickets that nobody has "
                f"used yet: wait {LIFE_S} s"
            )
        ticket = Ticket(user, time.time() + _MAKING_S)
        private.write(str(place / told), json.dumps(ticket.to_answer()))
    finally:
        os.close(lock)


def _swept(place: Path) -> dict[str, Ticket]:
    """Those that are good; what is left of others is removed."""
    found: dict[str, Ticket] = {}
    for name in os.listdir(place):
        if name == ".lock":
            continue
        ticket = _read(place / name) if _DIGEST.fullmatch(name) else None
        if ticket is not None and _is_good(ticket):
            found[name] = ticket
        elif ticket is not None or _is_old(place / name):
            with contextlib.suppress(OSError):
                os.unlink(place / name)
    return found


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.lstat().st_mtime > _MAKING_S
    return False


def _read(path: Path) -> Ticket | None:
    """None for what is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError, errors.BadAnswer):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, encoding="utf-8") as file:
            return Ticket.from_answer(json.loads(file.read(_MOST_BYTES)), str(path))
    return None
