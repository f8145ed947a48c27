"""Disks are shown to one machine alone: by NBD over TLS, to the one that the master has named, and
to no other whatever certificate it has. What it says is handed on to a server on a socket here.

QEMU's own TLS lets in every holder of a certificate of its authority, whatever that is for.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.wire import Fact

PORT, PORTS = 10809, 16
# addresses that mean all of this host's
EVERYWHERE = ("::", "0.0.0.0")
# of NBD's protocol
_MAGIC, _OPTION, _REPLY = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
_FLAGS = 3  # the newer style, without zeros
_ABORT, _STARTTLS = 2, 5
_ACK, _TLS_REQUIRED = 1, 2**31 + 5
_GREETING_BYTES = 18
_MOST_OPTIONS, _MOST_OPTION_BYTES = 16, 4096
# who may be connected and has not shown his certificate yet
_STRANGERS = 64
_HELLO_S = 20
_BUFFER_BYTES = 1024**2
# a peer that is gone without a word is noticed after a minute
_DEAD_MS = 60_000


@dataclass(frozen=True)
class Credentials(Fact):
    """Texts in PEM. authority: of this side's certificate, which the other one trusts. reader: the
    authority of who alone may read."""

    authority: str
    certificate: str
    key: str = field(repr=False)
    reader: str


@dataclass(frozen=True)
class Door(Fact):
    """Where disks are shown: the address, and the first port and how many of which a free one is
    taken; and to whom."""

    listen: str
    port: int
    ports: int
    credentials: Credentials


class Relay:
    """Lets one machine in. It ends with this process."""

    def __init__(self, listener: socket.socket, inner: str, context: ssl.SSLContext) -> None:
        self._listener, self._inner, self._context = listener, inner, context
        self._strangers = threading.BoundedSemaphore(_STRANGERS)
        self._open: set[socket.socket] = set()
        self._readers = 0
        self._lock = threading.Lock()
        self.port: int = listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def is_read(self) -> bool:
        """Whether somebody who may is connected."""
        return self._readers > 0

    def end(self) -> None:
        """Nobody is let in any more, and who was is shown out."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it was ended
            while True:
                caller, _ = self._listener.accept()
                if self._strangers.acquire(blocking=False):
                    threading.Thread(target=self._welcome, args=(caller,), daemon=True).start()
                else:
                    caller.close()

    def _welcome(self, caller: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, ValueError), self._counted(caller):
                try:
                    flags, tls = _secured(caller, self._context)
                finally:
                    self._strangers.release()
                with tls, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inner:
                    self._hand_on(tls, inner, flags)
        finally:
            caller.close()

    @contextlib.contextmanager
    def _counted(self, one: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.add(one)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(one)

    def _hand_on(self, tls: ssl.SSLSocket, inner: socket.socket, flags: bytes) -> None:
        with self._lock:
            self._readers += 1
        try:
            inner.settimeout(_HELLO_S)
            inner.connect(self._inner)
            _exactly(inner, _GREETING_BYTES, time.monotonic() + _HELLO_S)
            inner.sendall(flags)
            with self._counted(tls):
                _pump(tls, inner)
        finally:
            with self._lock:
                self._readers -= 1


def begin(door: Door, inner: str) -> Relay:
    """Opens the door. inner: the path of the socket on which the disks are served. Raises
    OperationFailed."""
    context = _context(door.credentials)
    return Relay(_listening(door), inner, context)


def everywhere() -> str:
    """The address that means all of this host's."""
    v6, v4 = EVERYWHERE
    return v6 if os.path.exists("/proc/net/if_inet6") else v4


def _listening(door: Door) -> socket.socket:
    """On a port that nobody listens on. Raises OperationFailed."""
    kind = socket.AF_INET6 if ":" in door.listen else socket.AF_INET
    for port in range(door.port, door.port + door.ports):
        found = socket.socket(kind, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if kind == socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            found.bind((door.listen, port))
            found.listen(_STRANGERS)
            return found
        except OSError:
            found.close()
    raise errors.OperationFailed(
        f"the ports from {door.port} to {door.port + door.ports - 1} are in use: so many backups "
        "are read from here"
    )


def _context(credentials: Credentials) -> ssl.SSLContext:
    """Raises OperationFailed for what is no key, or no certificate."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.verify_mode = ssl.CERT_REQUIRED
    try:
        found.load_verify_locations(cadata=credentials.reader)
        with tempfile.NamedTemporaryFile("w", prefix="salt-virt-") as file:  # root's alone
            file.write(credentials.key + credentials.certificate)
            file.flush()
            found.load_cert_chain(file.name)
    except (OSError, ValueError) as exc:
        raise errors.OperationFailed(f"the disks cannot be shown over TLS: {exc}") from exc
    return found


def _secured(caller: socket.socket, context: ssl.SSLContext) -> tuple[bytes, ssl.SSLSocket]:
    """(his flags, the secured line) of who shows the right certificate. Raises OSError, ValueError
    for anybody else."""
    until = time.monotonic() + _HELLO_S
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    caller.settimeout(_HELLO_S)
    caller.sendall(_MAGIC + _OPTION + struct.pack(">H", _FLAGS))
    flags = _exactly(caller, 4, until)
    for _ in range(_MOST_OPTIONS):
        magic, option, length = struct.unpack(">8sII", _exactly(caller, 16, until))
        if magic != _OPTION or option == _ABORT or length > _MOST_OPTION_BYTES:
            break
        _exactly(caller, length, until)
        answer = _ACK if option == _STARTTLS else _TLS_REQUIRED
        caller.sendall(struct.pack(">QIII", _REPLY, option, answer, 0))
        if answer == _ACK:
            caller.settimeout(max(0.1, until - time.monotonic()))
            return flags, context.wrap_socket(caller, server_side=True)
    raise ValueError("it does not want TLS")


def _exactly(line: socket.socket, length: int, until: float) -> bytes:
    """So many bytes. Raises OSError where they do not come in time."""
    found = b""
    while len(found) < length:
        line.settimeout(max(0.1, until - time.monotonic()))
        more = line.recv(length - len(found))
        if not more or time.monotonic() > until:
            raise ConnectionResetError("it said no more")
        found += more
    return found


def _pump(tls: ssl.SSLSocket, inner: socket.socket) -> None:
    """Both ways, until one side ends. Of one thread: OpenSSL allows no other."""
    tls.setblocking(False)
    inner.setblocking(False)
    up, down = _Way(tls, inner), _Way(inner, tls)
    while True:
        moved = up.step() + down.step()
        if up.is_over or down.is_over:
            return
        if not moved:
            readable = [way.source for way in (up, down) if not way.waiting]
            writable = [way.sink for way in (up, down) if way.waiting]
            select.select(readable, writable, [])


class _Way:
    """From one socket to another."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = memoryview(b"")
        self._buffer = bytearray(_BUFFER_BYTES)
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Nothing more comes, and all that came was handed on."""
        return self._ended and not self.waiting

    def step(self) -> int:
        """How many bytes could be read or written now. Raises OSError."""
        moved = 0
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not self.waiting and not self._ended:
                moved = self.source.recv_into(self._buffer)
                self._ended = not moved
                self.waiting = memoryview(self._buffer)[:moved]
            if self.waiting:
                sent = self.sink.send(self.waiting)
                self.waiting = self.waiting[sent:]
                moved += sent
        return moved
