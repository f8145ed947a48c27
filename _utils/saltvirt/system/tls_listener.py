"""TLS contexts, and TLS endpoints of this machine for a single client that the master has named.

Both sides of such an endpoint have certificates that were created for this purpose; the master
exchanges them.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from saltvirt import errors
from saltvirt.schema import Message

# wildcard addresses
EVERYWHERE = ("::", "0.0.0.0")
_BUFFER_BYTES = 1024**2
# a dead peer is detected after a minute
_DEAD_MS = 60_000


class CertificateFiles(NamedTuple):
    """Paths of a certificate and its key."""

    certificate: str
    key: str


@dataclass(frozen=True)
class TlsCredentials(Message):
    """PEM texts. authority: CA of this side's certificate, which the peer trusts. reader: CA of the
    only admitted client."""

    authority: str
    certificate: str
    key: str = field(repr=False)
    reader: str


@dataclass(frozen=True)
class TlsEndpoint(Message):
    """Address and range of ports of which a free one is used, and the credentials."""

    listen: str
    port: int
    ports: int
    credentials: TlsCredentials


def everywhere() -> str:
    """The wildcard address of this host."""
    v6, v4 = EVERYWHERE
    return v6 if os.path.exists("/proc/net/if_inet6") else v4


def listening(endpoint: TlsEndpoint, waiting: int, full: str) -> socket.socket:
    """Listen on a free port of an endpoint. waiting: backlog. full: consequence if no port is free.
    Raises OperationFailed."""
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


def new_context(
    purpose: int,
    pair: CertificateFiles | None = None,
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> ssl.SSLContext:
    """A TLS context. purpose: ``ssl.PROTOCOL_TLS_CLIENT`` or ``PROTOCOL_TLS_SERVER``; a server does
    not ask for certificates of clients before :func:`require_peer`. pair: this side's certificate.
    Raises OSError."""
    tls_context = ssl.SSLContext(purpose)
    tls_context.minimum_version = minimum_version
    if pair is not None:
        tls_context.load_cert_chain(*pair)
    return tls_context


def require_peer(
    tls_context: ssl.SSLContext, *, ca_file: str | None = None, ca_pem: str | None = None
) -> None:
    """Require a certificate of the peer from this authority. Raises OSError, ValueError."""
    tls_context.verify_mode = ssl.CERT_REQUIRED
    tls_context.load_verify_locations(ca_file, cadata=ca_pem)


def context(credentials: TlsCredentials, purpose: int = ssl.PROTOCOL_TLS_SERVER) -> ssl.SSLContext:
    """The TLS context of one side, which only accepts its peer. Raises OperationFailed for an
    invalid key or certificate."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as file:  # readable only by root
            file.write(credentials.key + credentials.certificate)
            file.flush()
            tls_context = new_context(purpose, CertificateFiles(file.name, file.name))
        require_peer(tls_context, ca_pem=credentials.reader)
    except (OSError, ValueError) as exc:
        raise errors.OperationFailed(f"invalid certificates for TLS: {exc}") from exc
    return tls_context


class ConnectionLimiter:
    """Limiter of connections that are not authenticated yet, with a limit for each address so that
    others are not locked out. max_connections: in total."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections, self._lock = max_connections, threading.Lock()
        self._max_per_address = max(1, max_connections // 4)
        self._by_address: Counter[str] = Counter()

    def acquire(self, address: str) -> bool:
        """Acquire a slot for an address, if possible; it is held until ``release``."""
        with self._lock:
            is_full = self._by_address.total() >= self._max_connections
            if is_full or self._by_address[address] >= self._max_per_address:
                return False
            self._by_address[address] += 1
            return True

    def release(self, address: str) -> None:
        """Release the slot of a connection that is authenticated or closed."""
        with self._lock:
            self._by_address[address] -= 1
            self._by_address += Counter()  # drop addresses without connections


def prepare(caller: socket.socket) -> None:
    """Set options of a socket: detect dead peers, and send data immediately."""
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def receive_exactly(connection: socket.socket, length: int, deadline: float) -> bytes:
    """Receive this number of bytes before a time of the monotonic clock. Raises OSError."""
    data = bytearray()
    while len(data) < length:
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        chunk = connection.recv(min(length - len(data), _BUFFER_BYTES))
        if not chunk:
            raise ConnectionResetError("the other side closed the connection")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
        data += chunk
    return bytes(data)


def pump(tls: ssl.SSLSocket, inner: socket.socket) -> None:
    """Copy data in both directions until one side closes, in a single thread, as OpenSSL
    requires."""
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
    """One direction of a connection between two sockets."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = memoryview(b"")
        self._buffer = bytearray(_BUFFER_BYTES)
        self._at_eof = False

    @property
    def is_done(self) -> bool:
        """Whether the source is closed and all its data was sent."""
        return self._at_eof and not self.waiting

    def step(self) -> int:
        """Read and write without blocking; returns the number of bytes. Raises OSError."""
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
