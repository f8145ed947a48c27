"""One connection, whoever made it: frames in, frames out, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from saltvirt.hatalk import frames

# so many frames wait at most for a slow reader; then the oldest goes
MOST_WAITING = 4096

_CANCEL_AGAIN_S = 0.1

# called with who speaks, the kind and the body; what it raises ends that connection
OnFrame = Callable[[str, str, dict[str, Any]], None]


@dataclass(frozen=True)
class Pace:
    """beat_s: the longest pause before it connects again. quiet_s: one that sends nothing says
    hello. silent_s: a connection without a frame for so long is closed. connect_s: for TCP and
    TLS."""

    beat_s: float = 1
    quiet_s: float = 3
    silent_s: float = 12
    connect_s: float = 2


class Outbox:
    """Frames that wait for one reader."""

    def __init__(self) -> None:
        self.waiting: dict[str, bytes] = {}
        self.dropped = 0
        self._count = 0
        self._some = asyncio.Event()

    def put(self, frame: frames.Frame) -> None:
        """Takes a frame, in the place of an older one of its slot."""
        self._count += 1
        key = frame.slot or f"#{self._count}"
        self.waiting.pop(key, None)
        self.waiting[key] = frame.data
        if len(self.waiting) > MOST_WAITING:
            del self.waiting[next(iter(self.waiting))]
            self.dropped += 1
        self._some.set()

    async def take(self) -> bytes:
        """The next frame, when there is one."""
        while not self.waiting:
            self._some.clear()
            await self._some.wait()
        return self.waiting.pop(next(iter(self.waiting)))


class Line:
    """A connection on which the other side has proven its name. may_say: kinds that are taken."""

    def __init__(
        self,
        name: str,
        may_say: frozenset[str],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pace: Pace,
        outbox: Outbox,
    ) -> None:
        self.name, self.may_say, self.pace, self.outbox = name, may_say, pace, outbox
        self._reader, self._writer = streams

    async def run(self, on_frame: OnFrame, on_life: Callable[[], None] = lambda: None) -> None:
        """Until the connection ends; raises what ended it. on_life: called at each frame."""
        tasks = [asyncio.ensure_future(one) for one in (self._hear(on_frame, on_life), self._say())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close()
            await ended(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    def close(self) -> None:
        """At once, whatever waits."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.transport.abort()

    async def _hear(self, on_frame: OnFrame, on_life: Callable[[], None]) -> None:
        while True:
            kind, body = await asyncio.wait_for(self._next(), self.pace.silent_s)
            on_life()
            if kind in self.may_say:
                on_frame(self.name, kind, body)

    async def _next(self) -> tuple[str, dict[str, Any]]:
        head = await self._reader.readexactly(frames.HEAD.size)
        data = await self._reader.readexactly(frames.length(head))
        return frames.parse(data, self.name)

    async def _say(self) -> None:
        data = frames.frame(frames.HELLO, {}).data
        while True:
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), self.pace.silent_s)
            try:
                data = await asyncio.wait_for(self.outbox.take(), self.pace.quiet_s)
            except asyncio.TimeoutError:
                data = frames.frame(frames.HELLO, {}).data


def tune(found: socket.socket, pace: Pace) -> None:
    """A connection whose other side is gone ends in time."""
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(pace.silent_s * 1000))


def words(exc: BaseException) -> str:
    """Why a connection ended, in a few words."""
    if isinstance(exc, (asyncio.TimeoutError, TimeoutError)):
        return "it was silent for too long"
    if isinstance(exc, asyncio.IncompleteReadError):
        return "it closed the connection"
    if isinstance(exc, ssl.SSLError):
        return f"TLS: {exc.reason or exc}"
    if isinstance(exc, OSError):
        return exc.strerror or str(exc)
    return str(exc) or type(exc).__name__


async def ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels them until they have ended: before Python 3.12 a cancel is lost that comes when what
    ``asyncio.wait_for`` waits for is just there."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
