"""Export disks through NBD over TLS to the one machine that the master named. Data is forwarded to
and from a server on a local socket.

QEMU's own TLS would accept every certificate of its authority, whatever its purpose.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

from saltvirt.system import tls_listener
from saltvirt.system.tls_listener import TlsEndpoint, receive_exactly

PORT, PORTS = 10809, 16
# of the NBD protocol
_MAGIC, _OPTION, _REPLY = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
_FLAGS = 3  # fixed newstyle, no zeroes
_ABORT, _STARTTLS = 2, 5
_ACK, _TLS_REQUIRED = 1, 2**31 + 5
_GREETING_BYTES = 18
_MAX_OPTIONS, _MAX_OPTION_BYTES = 16, 4096
# limit for connections without a verified certificate
_STRANGERS = 64
_HELLO_S, _ANSWERS_S = 20, 3
_PAUSE_S = 0.2


class Relay:
    """Accepts one machine. It ends together with this process."""

    def __init__(self, listener: socket.socket, inner: str, context: ssl.SSLContext) -> None:
        self._listener, self._inner, self._context = listener, inner, context
        self._strangers = tls_listener.ConnectionLimiter(_STRANGERS)
        self._open: set[socket.socket] = set()
        self._readers = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self.port: int = listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def has_readers(self) -> bool:
        """Whether the reader is connected."""
        return self._readers > 0

    def end(self) -> None:
        """Stop listening and close all connections."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                client, (address, *_) = self._listener.accept()
            except OSError:  # the relay was closed, or the system cannot accept a connection now
                time.sleep(_PAUSE_S)
                continue
            if self._strangers.acquire(address):
                args = (client, address)
                threading.Thread(target=self._handle_client, args=args, daemon=True).start()
            else:
                client.close()

    def _handle_client(self, client: socket.socket, address: str) -> None:
        try:
            with contextlib.suppress(OSError, ValueError), self._track(client):
                try:
                    flags, tls = _start_tls(client, self._context)
                finally:
                    self._strangers.release(address)
                with tls, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inner:
                    self._forward(tls, inner, flags)
        finally:
            client.close()

    @contextlib.contextmanager
    def _track(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def _forward(self, tls: ssl.SSLSocket, inner: socket.socket, flags: bytes) -> None:
        with self._lock:
            self._readers += 1
        try:
            inner.settimeout(_HELLO_S)
            inner.connect(self._inner)
            receive_exactly(inner, _GREETING_BYTES, time.monotonic() + _HELLO_S)
            inner.sendall(flags)
            with self._track(tls):
                tls_listener.pump(tls, inner)
        finally:
            with self._lock:
                self._readers -= 1


def begin(endpoint: TlsEndpoint, inner: str) -> Relay:
    """Start listening. inner: path of the socket of the local server. Raises OperationFailed."""
    context = tls_listener.context(endpoint.credentials)
    full = "too many connections are open"
    return Relay(tls_listener.listening(endpoint, _STRANGERS, full), inner, context)


def has_authority(host: str, port: int, authority: str) -> bool:
    """Whether the server there has a certificate of this authority. Raises OSError if there is no
    answer."""
    deadline = time.monotonic() + _ANSWERS_S
    context = tls_listener.new_context(ssl.PROTOCOL_TLS_CLIENT)
    tls_listener.require_peer(context, ca_pem=authority)
    with socket.create_connection((host, port), timeout=_ANSWERS_S) as connection:
        try:
            if receive_exactly(connection, _GREETING_BYTES, deadline)[:16] != _MAGIC + _OPTION:
                return False
            connection.sendall(struct.pack(">I8sII", 1, _OPTION, _STARTTLS, 0))
            if receive_exactly(connection, 20, deadline) != struct.pack(
                ">QIII", _REPLY, _STARTTLS, _ACK, 0
            ):
                return False
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            context.wrap_socket(connection, server_hostname=host).close()
            return True
        except OSError:
            return False


def _start_tls(client: socket.socket, context: ssl.SSLContext) -> tuple[bytes, ssl.SSLSocket]:
    """Return (NBD flags, TLS connection) of a client with the right certificate. Raises OSError,
    ValueError for all others."""
    deadline = time.monotonic() + _HELLO_S
    tls_listener.prepare(client)
    client.settimeout(_HELLO_S)
    client.sendall(_MAGIC + _OPTION + struct.pack(">H", _FLAGS))
    flags = receive_exactly(client, 4, deadline)
    for _ in range(_MAX_OPTIONS):
        magic, option, length = struct.unpack(">8sII", receive_exactly(client, 16, deadline))
        if magic != _OPTION or option == _ABORT or length > _MAX_OPTION_BYTES:
            break
        receive_exactly(client, length, deadline)
        answer = _ACK if option == _STARTTLS else _TLS_REQUIRED
        client.sendall(struct.pack(">QIII", _REPLY, option, answer, 0))
        if answer == _ACK:
            client.settimeout(max(0.1, deadline - time.monotonic()))
            return flags, context.wrap_socket(client, server_side=True)
    raise ValueError("the client does not use TLS")
