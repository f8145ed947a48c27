"""One connection, whoever made it: frames in, frames out, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from saltvirt.ha.transport import frames, tls

# so many frames wait at most for a slow reader; then the oldest goes
MAX_WAITING = 4096

_CANCEL_RETRY_S = 0.1

# called with who speaks, the kind and the body; what it raises ends that connection
OnFrame = Callable[[str, str, dict[str, Any]], None]


@dataclass(frozen=True)
class PeerTiming:
    """beat_s: the longest pause before it connects again. quiet_s: one that sends nothing says
    hello. silent_s: a connection without a frame for so long is closed, and one on which TLS has
    not proven who is there. connect_s: for TCP alone: one who has a hundred to greet at once needs
    longer for TLS. gather_s: so long it waits for more when something has come, if nothing is to
    be said: one who hears a hundred is not woken by each."""

    beat_s: float = 1
    quiet_s: float = 3
    silent_s: float = 12
    connect_s: float = 2
    gather_s: float = 0


class Outbox:
    """Frames that wait for one reader."""

    def __init__(self) -> None:
        self.waiting: dict[str, frames.Frame] = {}
        self.dropped = 0
        self._count = 0

    def put(self, frame: frames.Frame) -> None:
        """Takes a frame, in the place of an older one of its slot."""
        self._count += 1
        key = frame.slot or f"#{self._count}"
        self.waiting.pop(key, None)
        self.waiting[key] = frame
        if len(self.waiting) > MAX_WAITING:
            del self.waiting[next(iter(self.waiting))]
            self.dropped += 1

    def take(self) -> frames.Frame | None:
        """The next frame, if there is one."""
        return self.waiting.pop(next(iter(self.waiting))) if self.waiting else None


class PeerConnection(asyncio.Protocol):
    """A connection. It says what is in its outbox as soon as the other side takes it: ``say`` is
    called when something is put there. Each word that comes is handed over at once.

    may_say: the name of the other side, which it has proven, to the kinds that are taken of it;
    what it raises ends the connection. on_life: called with that name at each frame.
    """

    def __init__(
        self,
        kinds_of: Callable[[str], frozenset[str]],
        timing: PeerTiming,
        outbox: Outbox,
        on_frame: OnFrame,
        on_activity: Callable[[str], None],
    ) -> None:
        self.name, self.timing, self.outbox = "", timing, outbox
        self._kinds_of, self._on_frame, self._on_activity = kinds_of, on_frame, on_activity
        self._accepted_kinds: frozenset[str] = frozenset()
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._received_s = self._sent_s = self._loop.time()
        self._paused_s: float | None = None
        # the last beat of each side on this connection; whether the other side takes changes
        self._last_received: dict[str, Any] | None = None
        self._last_sent: frames.Frame | None = None
        self._takes_changes = False

    async def run(self) -> None:
        """Until the connection ends; raises what ended it."""
        try:
            await self._closed
        finally:
            self.close()

    def close(self) -> None:
        """At once, whatever waits."""
        self._end(None)

    def flush(self) -> None:
        """What is in the outbox, as much as the other side takes."""
        if self._transport is None or self._closed.done():
            return
        while self._paused_s is None and (frame := self.outbox.take()) is not None:
            self._write(frame)

    def _write(self, frame: frames.Frame) -> None:
        data = frame.data
        if frame.body is not None:
            data = frame.encode_since(self._last_sent) if self._takes_changes else data
            self._last_sent = frame
        self._sent_s = self._loop.time()
        if self._transport is not None:
            self._transport.write(data)

    def _end(self, exc: Exception | None) -> None:
        if not self._closed.done():
            if exc is None:
                self._closed.set_result(None)
            else:
                self._closed.set_exception(exc)
                self._closed.exception()  # nobody may come to ask for it
        if self._transport is not None:
            self._transport.abort()

    def _check_alive(self) -> None:
        """That there is life on it, in both directions."""
        if self._closed.done():
            return
        now_s, timing = self._loop.time(), self.timing
        silent_s = max(now_s - self._received_s, now_s - (self._paused_s or now_s))
        if silent_s >= timing.silent_s:
            self._end(TimeoutError())
            return
        if self._paused_s is None and now_s - self._sent_s >= timing.quiet_s:
            self._write(_HELLO)
        self._loop.call_later(min(timing.quiet_s, timing.silent_s - silent_s), self._check_alive)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS has proven who is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(1, 0)
        self.name = tls.name(transport.get_extra_info("ssl_object"))
        try:
            self._accepted_kinds = self._kinds_of(self.name)
            tune(transport.get_extra_info("socket"), self.timing)
        except Exception as exc:
            self._end(exc)
            return
        self._write(_HELLO)
        self._check_alive()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side, or TLS, ended it."""
        self._end(exc or EOFError())

    def data_received(self, data: bytes) -> None:
        """A part of one frame, or of several."""
        buffer, head = self._buffer, frames.HEAD.size
        buffer += data
        start = 0
        try:
            while not self._closed.done() and len(buffer) - start >= head:
                end = start + head + frames.length(bytes(buffer[start : start + head]))
                if len(buffer) < end:
                    break
                self._receive(bytes(buffer[start + head : end]))
                start = end
        except Exception as exc:
            self._end(exc)
        del buffer[:start]

    def _receive(self, data: bytes) -> None:
        kind, body = frames.parse(data, self.name, self._last_received)
        self._received_s = self._loop.time()
        self._on_activity(self.name)
        if kind == frames.BEAT:
            self._last_received = body
        if kind == frames.HELLO:
            self._takes_changes = body.get(frames.CHANGES) is True
        if kind in self._accepted_kinds:
            self._on_frame(self.name, kind, body)

    def pause_writing(self) -> None:
        """The other side is slow."""
        self._paused_s = self._loop.time()

    def resume_writing(self) -> None:
        """It has taken what was written."""
        self._paused_s = None
        self.flush()


_HELLO = frames.frame(frames.HELLO, {frames.CHANGES: True})


def tune(sock: socket.socket, timing: PeerTiming) -> None:
    """A connection whose other side is gone ends in time."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timing.silent_s * 1000))


def describe_error(exc: BaseException) -> str:
    """Why a connection ended, in a few words."""
    if isinstance(exc, (asyncio.TimeoutError, TimeoutError)):
        return "it was silent for too long"
    if isinstance(exc, EOFError):
        return "it closed the connection"
    if isinstance(exc, ssl.SSLError):
        return f"TLS: {exc.reason or exc}"
    if isinstance(exc, OSError):
        return exc.strerror or str(exc)
    return str(exc) or type(exc).__name__


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels them until they have ended: before Python 3.12 a cancel is lost that comes when what
    ``asyncio.wait_for`` waits for is just there."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_RETRY_S)
