"""Whose turn it is to copy an image from this master.

``virt:image_copies`` of the master's configuration is how many copies are made at a time. Who
asks gets a place in a queue; the first so many may copy. A place is lost by who is silent for
``LEASE_S``, so that a host that died holds nobody up. Nor does one that turned bad: of each host
one place holds others up, and no longer than ``HELD_S``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from saltvirt import errors, settings
from saltvirt.schema import Message

AT_ONCE = 4
LEASE_S = 60
LOCK_S = 10
# who copies for longer than this goes on, and others no longer wait for it
MAX_HOLD_S = 3600
# a host that asks for more at a time than this is told to wait
_PER_HOST = 16
_IMAGE = re.compile(r"[0-9a-f]{40}")


@dataclass
class QueueEntry(Message):
    """One who waits or copies. seen: when it last asked, in seconds since 1970. copies: it may
    copy, since then."""

    host: str
    image: str
    seen: float
    copies: bool = False
    since: float | None = None


@dataclass
class _Queue(Message):
    places: list[QueueEntry]


def at_once(opts: dict[str, Any]) -> int:
    """How many copies are made at a time, by the master's options. Raises InvalidInput."""
    return settings.integer(settings.of_master(opts), "image_copies", AT_ONCE)


class DownloadQueue:
    """The queue. opts: the master's options; now: the clock, in seconds."""

    def __init__(self, opts: dict[str, Any], now: Callable[[], float] = time.time) -> None:
        self._limit = at_once(opts)
        self._folder = os.path.join(opts["cachedir"], "virt")
        self._now = now

    def ask(self, host: str, image: str, done: bool = False) -> int:
        """How many must finish before the host may copy the image: 0 when it may.

        To be asked again until it may, and every few seconds while it copies. done: it has
        copied, and its place is free. Raises InvalidInput.
        """
        if not _IMAGE.fullmatch(image):
            raise errors.InvalidInput("an image is asked for by 40 hexadecimal digits")
        with self._queue() as queue:
            now = self._now()
            # one of a clock that was ahead is as old as one of long ago
            queue[:] = [p for p in queue if abs(now - p.seen) < LEASE_S]
            entry = next((p for p in queue if (p.host, p.image) == (host, image)), None)
            if done:
                queue[:] = [p for p in queue if p is not entry]
                return 0
            if entry is None and sum(p.host == host for p in queue) >= _PER_HOST:
                return len(queue)
            if entry is None:
                entry = QueueEntry(host, image, now)
                queue.append(entry)
            ahead = _before(queue, entry, now) + 1 - self._limit
            entry.seen = now
            if ahead <= 0 and not entry.copies:
                entry.copies, entry.since = True, now
            return 0 if entry.copies else ahead

    @staticmethod
    def _lock(file: TextIO, path: str) -> None:
        """Others hold it for an instant; one that hangs must not hang the master's workers."""
        end = time.monotonic() + LOCK_S
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise errors.OperationFailed(
                        f"another process has held {path} for {LOCK_S} s: see who with fuser {path}"
                    ) from None
                time.sleep(0.02)

    @contextlib.contextmanager
    def _queue(self) -> Iterator[list[QueueEntry]]:
        """The queue as a list of places, locked; what is changed in it is kept."""
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, "copies")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(fd, "r+", encoding="utf-8") as file:
            self._lock(file, path)
            queue = _read(file)
            yield queue
            file.seek(0)
            file.truncate()
            json.dump([entry.to_answer() for entry in queue], file)


def _read(file: TextIO) -> list[QueueEntry]:
    """The places in a file; none of one that is new, or damaged: who copies asks again."""
    try:
        return _Queue.from_answer({"places": json.load(file)}, "copies").places
    except (ValueError, RecursionError, errors.BadAnswer):
        return []


def _before(queue: list[QueueEntry], entry: QueueEntry, now: float) -> int:
    """How many places before it hold this one up."""
    before = [
        p
        for p in queue[: queue.index(entry)]
        if now - (now if p.since is None else p.since) <= MAX_HOLD_S
    ]
    hosts = {ahead.host for ahead in before}
    return len(before) if entry.host in hosts else len(hosts)
