"""A connection between two machines, whichever opened it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from saltvirt.ha.transport import frames, tls

# maximum number of frames that wait for a slow reader; then the oldest is dropped
MAX_WAITING = 4096

_CANCEL_RETRY_S = 0.1

# called with the sender, the kind and the body; an exception ends the connection
OnFrame = Callable[[str, str, dict[str, Any]], None]


@dataclass(frozen=True)
class PeerTiming:
    """Timeouts of a connection. beat_s: the maximum pause before it is opened again. quiet_s: the
    keepalive interval. silent_s: the time without a frame, or without a completed TLS handshake,
    after which it is closed. connect_s: the timeout for TCP alone; TLS may take longer while a
    hundred peers connect at once. gather_s: how long to collect further frames after one has
    arrived, while nothing is to be sent, so that a hundred peers do not wake the process a hundred
    times."""

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
        """Add a frame. It replaces an older frame of its slot."""
        self._count += 1
        key = frame.slot or f"#{self._count}"
        self.waiting.pop(key, None)
        self.waiting[key] = frame
        if len(self.waiting) > MAX_WAITING:
            del self.waiting[next(iter(self.waiting))]
            self.dropped += 1

    def take(self) -> frames.Frame | None:
        """Remove and return the next frame, or None."""
        return self.waiting.pop(next(iter(self.waiting))) if self.waiting else None


class PeerConnection(asyncio.Protocol):
    """A connection. It sends the frames of its outbox as soon as the peer accepts data; call
    ``flush`` after adding one. Received messages are handed over at once.

    kinds_of: maps the verified name of the peer to the kinds that it may send; an exception ends
    the connection. on_activity: called with that name for each frame.
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
        # the last heartbeat of each side on this connection; whether the peer accepts changes
        self._last_received: dict[str, Any] | None = None
        self._last_sent: frames.Frame | None = None
        self._takes_changes = False

    async def run(self) -> None:
        """Wait until the connection ends, and raise the reason."""
        try:
            await self._closed
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection at once. Waiting frames are lost."""
        self._end(None)

    def flush(self) -> None:
        """Send the frames of the outbox, as far as the peer accepts data."""
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
                self._closed.exception()  # mark it as retrieved: run() may not be waiting
        if self._transport is not None:
            self._transport.abort()

    def _check_alive(self) -> None:
        """Check that data flows in both directions, and send keepalives."""
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

    # callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the end of the TLS handshake, which has verified the peer."""
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
        """Handle the end of the connection by the peer or by TLS."""
        self._end(exc or EOFError())

    def data_received(self, data: bytes) -> None:
        """Parse a part of a frame, or several frames."""
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
        """Stop sending: the peer is slow."""
        self._paused_s = self._loop.time()

    def resume_writing(self) -> None:
        """Continue to send: the peer has accepted what was written."""
        self._paused_s = None
        self.flush()


_HELLO = frames.frame(frames.HELLO, {frames.CHANGES: True})


def tune(sock: socket.socket, timing: PeerTiming) -> None:
    """Set the TCP timeout, so that the connection ends in time if the peer is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timing.silent_s * 1000))


def describe_error(exc: BaseException) -> str:
    """Describe in a few words why a connection ended."""
    if isinstance(exc, (asyncio.TimeoutError, TimeoutError)):
        return "the connection timed out"
    if isinstance(exc, EOFError):
        return "the peer closed the connection"
    if isinstance(exc, ssl.SSLError):
        return f"TLS: {exc.reason or exc}"
    if isinstance(exc, OSError):
        return exc.strerror or str(exc)
    return str(exc) or type(exc).__name__


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks repeatedly until they have ended: before Python 3.12 a cancellation is lost
    if it coincides with the result that ``asyncio.wait_for`` waits for."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_RETRY_S)
