"""A door is a port of this machine, by TLS, for the one whom the master has named.

Both sides have certificates that were made for this; the master introduces them to each other.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.schema import Message

# addresses that mean all of this host's
EVERYWHERE = ("::", "0.0.0.0")
_BUFFER_BYTES = 1024**2
# such a part of the places of those who have not shown yet who they are is one address' at most
_PART = 4
# a peer that is gone without a word is noticed after a minute
_DEAD_MS = 60_000


@dataclass(frozen=True)
class TlsCredentials(Message):
    """Texts in PEM. authority: of this side's certificate, which the other one trusts. reader: the
    authority of who alone may come in."""

    authority: str
    certificate: str
    key: str = field(repr=False)
    reader: str


@dataclass(frozen=True)
class TlsEndpoint(Message):
    """The address, and the first port and how many of which a free one is taken; and for whom."""

    listen: str
    port: int
    ports: int
    credentials: TlsCredentials


def everywhere() -> str:
    """The address that means all of this host's."""
    v6, v4 = EVERYWHERE
    return v6 if os.path.exists("/proc/net/if_inet6") else v4


def listening(endpoint: TlsEndpoint, waiting: int, full: str) -> socket.socket:
    """On a port that nobody listens on. waiting: so many may. full: what it means that there is
    none. Raises OperationFailed."""
    kind = socket.AF_INET6 if ":" in endpoint.listen else socket.AF_INET
    for port in range(endpoint.port, endpoint.port + endpoint.ports):
        listener = socket.socket(kind, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if kind == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((endpoint.listen, port))
            listener.listen(waiting)
            return listener
        except OSError:
            listener.close()
    last = endpoint.port + endpoint.ports - 1
    raise errors.OperationFailed(f"the ports from {endpoint.port} to {last} are in use: {full}")


def context(credentials: TlsCredentials, purpose: int = ssl.PROTOCOL_TLS_SERVER) -> ssl.SSLContext:
    """Of one side, which lets in, or speaks to, the other one alone. Raises OperationFailed for
    what is no key, or no certificate."""
    tls_context = ssl.SSLContext(purpose)
    tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
    tls_context.verify_mode = ssl.CERT_REQUIRED
    try:
        tls_context.load_verify_locations(cadata=credentials.reader)
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as file:  # root's alone
            file.write(credentials.key + credentials.certificate)
            file.flush()
            tls_context.load_cert_chain(file.name)
    except (OSError, ValueError) as exc:
        raise errors.OperationFailed(f"these are no certificates for TLS: {exc}") from exc
    return tls_context


class ConnectionLimiter:
    """Who is connected, and has not shown yet who he is: of one address never so many that there is
    no place for others. most: in all."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections, self._lock = max_connections, threading.Lock()
        self._by_address: Counter[str] = Counter()

    def acquire(self, address: str) -> bool:
        """Whether there is a place for one of that address; it is his until ``leave``."""
        with self._lock:
            from_address = self._by_address[address]
            if self._by_address.total() >= self._max_connections or from_address >= max(
                1, self._max_connections // _PART
            ):
                return False
            self._by_address[address] += 1
            return True

    def release(self, address: str) -> None:
        """He is none any more, or has gone."""
        with self._lock:
            self._by_address[address] -= 1
            self._by_address += Counter()  # without those of whom none is there


def prepare(caller: socket.socket) -> None:
    """One that is gone is noticed, and what is said goes out at once."""
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pump(tls: ssl.SSLSocket, inner: socket.socket) -> None:
    """Both ways, until one side ends. Of one thread: OpenSSL allows no other."""
    tls.setblocking(False)
    inner.setblocking(False)
    up, down = _Pipe(tls, inner), _Pipe(inner, tls)
    while True:
        moved = up.step() + down.step()
        if up.is_done or down.is_done:
            return
        if not moved:
            readable = [pipe.source for pipe in (up, down) if not pipe.waiting]
            writable = [pipe.sink for pipe in (up, down) if pipe.waiting]
            select.select(readable, writable, [])


class _Pipe:
    """From one socket to another."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = memoryview(b"")
        self._buffer = bytearray(_BUFFER_BYTES)
        self._at_eof = False

    @property
    def is_done(self) -> bool:
        """Nothing more comes, and all that came was handed on."""
        return self._at_eof and not self.waiting

    def step(self) -> int:
        """How many bytes could be read or written now. Raises OSError."""
        moved_bytes = 0
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not self.waiting and not self._at_eof:
                moved_bytes = self.source.recv_into(self._buffer)
                self._at_eof = not moved_bytes
                self.waiting = memoryview(self._buffer)[:moved_bytes]
            if self.waiting:
                sent_bytes = self.sink.send(self.waiting)
                self.waiting = self.waiting[sent_bytes:]
                moved_bytes += sent_bytes
        return moved_bytes
