"""All connections of an agent or a master, on a thread of their own.

    network = PeerNetwork(credentials, on_frame)
    network.listen("0.0.0.0", 16516, members=("hv2", "hv3"), masters=("master",))  # an agent
    network.add_peer("hv2", "10.0.0.2", 16516)                                     # both
    network.send("hv2", frames.frame(frames.BEAT, beat.to_answer()))
    network.close()

``on_frame(name, kind, body)`` is called on that thread and must not block. An exception ends the
connection with a log message.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import errno
import functools
import logging
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.ha.transport import frames, tls
from saltvirt.ha.transport.peer_connection import (
    OnFrame,
    Outbox,
    PeerConnection,
    PeerTiming,
    cancel_all,
    describe_error,
)

log = logging.getLogger(__name__)

PORT = 16516
_FIRST_RETRY_S = 0.2
# maximum number of unverified connections: per address, and in total
_UNPROVEN_EACH, _UNPROVEN = 8, 256
_CLOSE_S = 5
# factor by which the collecting time is shortened while there is activity
_HURRY = 5


class PeerNetwork:
    """The connections of one process. Its methods are thread-safe."""

    def __init__(
        self, credentials: tls.PeerCredentials, on_frame: OnFrame, timing: PeerTiming | None = None
    ) -> None:
        self._credentials, self._on_frame, self._timing = (
            credentials,
            on_frame,
            timing or PeerTiming(),
        )
        self._gathering = _Gathering(self._timing.gather_s)
        self._loop = asyncio.SelectorEventLoop(self._gathering)
        self._links: dict[str, _PersistentLink] = {}
        self._accepted: dict[str, PeerConnection] = {}
        self._heard_at_s: dict[str, float] = {}
        self._outgoing: collections.deque[tuple[str, frames.Frame]] = collections.deque()
        self._is_woken = False
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="peer network", daemon=True
        )
        self._thread.start()

    def listen(
        self, address: str, port: int, members: Collection[str], masters: Collection[str]
    ) -> int:
        """Accept connections from these names only. Return the port.

        address: empty for all addresses of the host. Raises ConnectionFailed if it cannot listen.
        """
        kinds_by_name = {
            **dict.fromkeys(members, frames.FROM_MEMBERS),
            **dict.fromkeys(masters, frames.FROM_MASTERS),
        }
        both = not address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (address, port), family=family, backlog=128, dualstack_ipv6=both
            )
        except OSError as exc:
            raise errors.ConnectionFailed(
                f"cannot listen on {address}:{port}: {exc.strerror}"
            ) from exc
        self._listener.setblocking(False)
        self._begin(_accept(self, self._listener, kinds_by_name))
        return int(self._listener.getsockname()[1])

    def add_peer(self, name: str, address: str, port: int = PORT) -> None:
        """Keep a connection to the agent of that name open. Call it once per name."""
        self._run(self._add_peer, name, address, port)

    def send(self, name: str, frame: frames.Frame) -> None:
        """Send a frame on the connection to that name, or on the connection that this peer opened.
        Without a connection the newest frame of each slot is kept for peers that were added."""
        self._outgoing.append((name, frame))
        if not self._is_woken:  # one wake-up for all frames that are sent at the same time
            self._is_woken = True
            self._run(self._send_all)

    def hurry(self, for_s: float) -> None:
        """Collect frames for a shorter time during the next for_s seconds, while there is
        activity."""
        self._gathering.hurries_until_s = time.monotonic() + for_s

    def heard_s(self, name: str) -> float | None:
        """Return the seconds since a frame of that name arrived, on any connection; None: never."""
        at_s = self._heard_at_s.get(name)
        return None if at_s is None else time.monotonic() - at_s

    def close(self) -> None:
        """Close all connections and end the thread."""
        if not self._loop.is_closed():
            try:
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CLOSE_S)
            except concurrent.futures.TimeoutError:
                log.warning("some connections did not close within %s s", _CLOSE_S)
            self._run(self._loop.stop)
            self._thread.join(_CLOSE_S)
            self._loop.close()
        if self._listener is not None:
            self._listener.close()

    async def _end(self) -> None:
        await cancel_all(asyncio.all_tasks() - {asyncio.current_task()})

    # on the thread of the loop

    def _run(self, function: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._run(self.begin, coroutine)

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of the thread."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add_peer(self, name: str, address: str, port: int) -> None:
        link = self._links[name] = _PersistentLink(name, (address, port), Outbox())
        link.task = self._loop.create_task(link.maintain(self))

    def _send_all(self) -> None:
        self._is_woken = False
        with contextlib.suppress(IndexError):
            while True:
                self._send(*self._outgoing.popleft())

    def _send(self, name: str, frame: frames.Frame) -> None:
        link = self._links.get(name)
        connection = link.connection if link else self._accepted.get(name)
        outbox = link.outbox if link else connection.outbox if connection else None
        if outbox is not None:
            outbox.put(frame)
        if connection is not None:
            connection.flush()

    def mark_alive(self, name: str) -> None:
        """Record that a frame of that name arrived."""
        self._heard_at_s[name] = time.monotonic()

    async def serve(
        self, sock: socket.socket, kinds_by_name: dict[str, frozenset[str]]
    ) -> PeerConnection:
        """Complete the TLS handshake of an accepted connection. It replaces an older connection of
        the same name."""
        try:
            context = tls.to_listen(self._credentials)
        except errors.VirtError:
            sock.close()
            raise

        def check_name(name: str) -> frozenset[str]:
            if name not in kinds_by_name:
                peer = name or "a peer without a name"
                raise frames.BadFrame(f"{peer} is neither a member nor a master")
            return kinds_by_name[name]

        connection = PeerConnection(
            check_name, self._timing, Outbox(), self._on_frame, self.mark_alive
        )
        await self._loop.connect_accepted_socket(
            lambda: connection, sock, ssl=context, ssl_handshake_timeout=self._timing.silent_s
        )
        if connection.name in kinds_by_name:
            older = self._accepted.get(connection.name)
            self._accepted[connection.name] = connection
            if older is not None:
                older.close()
        return connection

    def remove(self, connection: PeerConnection) -> None:
        """Forget a connection that has ended."""
        if self._accepted.get(connection.name) is connection:
            del self._accepted[connection.name]

    async def connect(
        self, name: str, endpoint: tuple[str, int], outbox: Outbox, on_activity: Callable[[], None]
    ) -> PeerConnection:
        """Open a connection to that name and verify it."""

        def expected(peer: str) -> frozenset[str]:
            if peer != name:
                raise frames.BadFrame(f"the peer is {peer or 'without a name'}")
            return frames.FROM_MEMBERS

        def alive(_: str) -> None:
            self.mark_alive(name)
            on_activity()

        connection = PeerConnection(expected, self._timing, outbox, self._on_frame, alive)
        context = tls.to_connect(self._credentials)
        sock = await asyncio.wait_for(self._open_socket(endpoint), self._timing.connect_s)
        await self._loop.create_connection(
            lambda: connection,
            sock=sock,
            ssl=context,
            server_hostname=endpoint[0],
            ssl_handshake_timeout=self._timing.silent_s,
        )
        return connection

    async def _open_socket(self, endpoint: tuple[str, int]) -> socket.socket:
        """Open a TCP connection to the first address that responds."""
        last: OSError | None = None
        for family, kind, proto, _, address in await self._loop.getaddrinfo(
            *endpoint, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, proto)
            try:
                sock.setblocking(False)
                await self._loop.sock_connect(sock, address)
                return sock
            except OSError as exc:
                last = exc
                sock.close()
            except BaseException:
                sock.close()
                raise
        raise last or OSError(errno.EHOSTUNREACH, "the name has no address")

    @property
    def timing(self) -> PeerTiming:
        """The timeouts of the connections."""
        return self._timing


class _Gathering(selectors.DefaultSelector):
    """A selector that collects further events for a short time after the first, unless another
    thread wakes the loop. The first file object that is registered is the loop's own wake-up
    pipe."""

    def __init__(self, gather_s: float) -> None:
        super().__init__()
        self.hurries_until_s = float("-inf")
        self._gather_s = gather_s
        self._woken = select.poll()
        self._own_fd = -1

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register a file object, as in the base class."""
        key = super().register(fileobj, events, data)
        if self._own_fd < 0:
            self._own_fd = key.fd
            self._woken.register(key.fd, select.POLLIN)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events, as in the base class."""
        ready = super().select(timeout)
        if not ready or not self._gather_s or any(key.fd == self._own_fd for key, _ in ready):
            return ready
        hurries = time.monotonic() < self.hurries_until_s
        self._woken.poll(1000 * self._gather_s / (_HURRY if hurries else 1))
        return super().select(0)


class _PersistentLink:
    """A connection that is opened again whenever it ends."""

    def __init__(self, name: str, endpoint: tuple[str, int], outbox: Outbox) -> None:
        self.name, self.endpoint, self.outbox = name, endpoint, outbox
        self.task: asyncio.Task[None] | None = None
        self.connection: PeerConnection | None = None
        self._last_message = ""

    async def maintain(self, network: PeerNetwork) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                self.connection = await network.connect(
                    self.name, self.endpoint, self.outbox, self._alive
                )
                await self.connection.run()
            except Exception as exc:  # the connection is retried after any error
                self._lost(exc)
            is_stable = time.monotonic() - began_s > network.timing.silent_s
            pause_s = _FIRST_RETRY_S if is_stable else min(2 * pause_s, network.timing.beat_s)
            await asyncio.sleep(pause_s)

    def _alive(self) -> None:
        self._log_once("connected")

    def _lost(self, exc: Exception) -> None:
        self._log_once(f"no connection: {describe_error(exc)}")

    def _log_once(self, text: str) -> None:
        """Log a text unless it was the last one."""
        if text != self._last_message:
            log.info("%s at %s:%s: %s", self.name, *self.endpoint, sanitize.one_line(text))
        self._last_message = text


async def _accept(
    network: PeerNetwork, listener: socket.socket, kinds_by_name: dict[str, frozenset[str]]
) -> None:
    """Accept connections until cancelled. Limit the connections that are not verified yet, per
    address and in total."""
    loop = asyncio.get_running_loop()
    unproven: collections.Counter[str] = collections.Counter()
    complaints = _ComplaintLog()
    while True:
        try:
            sock, address = await loop.sock_accept(listener)
        except OSError as exc:
            complaints.record("the listening port", describe_error(exc))
            await asyncio.sleep(_FIRST_RETRY_S)
            continue
        client = str(address[0])
        if unproven[client] >= _UNPROVEN_EACH or unproven.total() >= _UNPROVEN:
            sock.close()
            continue
        unproven[client] += 1
        on_proven = functools.partial(_forget, unproven, client)
        network.begin(_serve(network, sock, kinds_by_name, client, on_proven, complaints))


def _forget(unproven: collections.Counter[str], client: str) -> None:
    unproven[client] -= 1
    if unproven[client] <= 0:
        del unproven[client]


async def _serve(
    network: PeerNetwork,
    sock: socket.socket,
    kinds_by_name: dict[str, frozenset[str]],
    client: str,
    on_proven: Callable[[], None],
    complaints: _ComplaintLog,
) -> None:
    try:
        try:
            connection = await network.serve(sock, kinds_by_name)
        finally:
            on_proven()
        try:
            await connection.run()
        finally:
            network.remove(connection)
    except Exception as exc:  # the other connections continue
        complaints.record(client, describe_error(exc))


class _ComplaintLog:
    """Logs rejected connections without filling the log when a client repeats them."""

    MAX_CLIENTS = 1000

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}

    def record(self, client: str, text: str) -> None:
        """Log the error of a client if it differs from its last one."""
        if self._messages.get(client) == text:
            return
        if len(self._messages) >= self.MAX_CLIENTS:
            self._messages.clear()
        self._messages[client] = text
        log.info("connection from %s: %s", client, sanitize.one_line(text))
