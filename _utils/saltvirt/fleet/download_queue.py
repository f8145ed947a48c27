"""The queue of hosts that copy images from this master.

``virt:image_copies`` in the master's configuration is the maximum number of copies at a time. Each
request gets an entry in a queue; the first entries may copy. An entry expires if its host is silent
for ``LEASE_S``, so a dead host does not block others. A malicious host does not block others
either: only one entry of each host counts for others, for at most ``MAX_HOLD_S``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from saltvirt import errors, settings
from saltvirt.schema import Message
from saltvirt.system import file_lock

AT_ONCE = 4
LEASE_S = 60
LOCK_S = 10
# a copy that takes longer continues, and others no longer wait for it
MAX_HOLD_S = 3600
# a host with more entries than this has to wait
_PER_HOST = 16
_IMAGE = re.compile(r"[0-9a-f]{40}")


@dataclass
class QueueEntry(Message):
    """A host that waits or copies.

    last_seen_s: the time of its last request, in seconds since 1970. copies: it may
    copy, since ``since``.
    """

    host: str
    image: str
    last_seen_s: float
    copies: bool = False
    since: float | None = None


@dataclass
class _Queue(Message):
    places: list[QueueEntry]


def at_once(opts: dict[str, Any]) -> int:
    """Return the maximum number of copies at a time. Raises InvalidInput."""
    return settings.integer(settings.of_master(opts), "image_copies", AT_ONCE)


class DownloadQueue:
    """The queue. opts: the master's options. now: the clock, in seconds."""

    def __init__(self, opts: dict[str, Any], now: Callable[[], float] = time.time) -> None:
        self._limit = at_once(opts)
        self._folder = os.path.join(opts["cachedir"], "virt")
        self._now = now

    def ask(self, host: str, image: str, done: bool = False) -> int:
        """Return how many copies must finish before the host may copy the image; 0: it may.

        The host repeats the request until it may copy, and every few seconds while it copies. done:
        the copy is complete. Raises InvalidInput.
        """
        if not _IMAGE.fullmatch(image):
            raise errors.InvalidInput("the image must be 40 hexadecimal digits")
        with self._queue() as queue:
            now = self._now()
            # an entry in the future, after the clock was set back, is as invalid as an old one
            queue[:] = [p for p in queue if abs(now - p.last_seen_s) < LEASE_S]
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
            entry.last_seen_s = now
            if ahead <= 0 and not entry.copies:
                entry.copies, entry.since = True, now
            return 0 if entry.copies else ahead

    @contextlib.contextmanager
    def _queue(self) -> Iterator[list[QueueEntry]]:
        """Yield the locked queue as a list of entries. Changes are saved."""
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, "copies")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(fd, "r+", encoding="utf-8") as file:
            if not file_lock.lock(file, timeout_s=LOCK_S):  # must not block the master's workers
                raise errors.OperationFailed(
                    f"another process has locked {path} for {LOCK_S} s: find it with fuser {path}"
                )
            queue = _read(file)
            yield queue
            file.seek(0)
            file.truncate()
            json.dump([entry.to_answer() for entry in queue], file)


def _read(file: TextIO) -> list[QueueEntry]:
    """Return the entries in a file; none if it is new or damaged, because hosts ask again."""
    try:
        return _Queue.from_answer({"places": json.load(file)}, "copies").places
    except (ValueError, RecursionError, errors.BadAnswer):
        return []


def _before(queue: list[QueueEntry], entry: QueueEntry, now: float) -> int:
    """Return how many entries block this one."""
    before = [
        p
        for p in queue[: queue.index(entry)]
        if now - (now if p.since is None else p.since) <= MAX_HOLD_S
    ]
    hosts = {ahead.host for ahead in before}
    return len(before) if entry.host in hosts else len(hosts)
