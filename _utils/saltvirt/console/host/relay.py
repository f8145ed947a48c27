"""The relay program: wait for one client, open the guest's device through libvirt, and forward data
in both directions.

The program does not use the port of a display: libvirt returns a connection to the display of the
guest with the given UUID. The program ends if no client connects in time, if the guest stops, and
when the client disconnects.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, Queue

from saltvirt import errors, settings
from saltvirt.answers import reach
from saltvirt.console.host import agent, session
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.schema import Message
from saltvirt.system import detached, tls_listener

MODULE = "console.host.relay"
PORT, PORT_COUNT = 10840, 64
# timeout for the client's connection
CALLER_TIMEOUT_S = 40
# clients without a verified certificate: how many, and their timeout
_MAX_PENDING = 16
_HELLO_TIMEOUT_S = 10
_CHUNK_BYTES = 64 * 1024
# timeout for removing an incomplete file of a client that disconnected
_CLEANUP_TIMEOUT_S = 120
_FULL = "too many connections to displays and serial ports of this host are open"


@dataclass(frozen=True)
class RelayRequest(Message):
    """What the relay program connects to.

    uuid: of the guest. kind: DISPLAY, SERIAL or AGENT of reach. number: of the display. force: take
    over the serial port from another client. uri, username, password: of libvirt. endpoint: where
    to listen, and which client to accept.
    """

    uuid: str
    kind: str
    number: int
    force: bool
    uri: str | None
    username: str | None
    password: str | None
    endpoint: tls_listener.TlsEndpoint


def port(get: settings.Get) -> int:
    """The first port from the host's configuration. Raises InvalidInput."""
    return settings.integer(get, "reach:port", PORT, maximum=65535 - PORT_COUNT)


def main(_arguments: list[str]) -> int:
    """Read the request from standard input and write one line of JSON with the port or an error to
    standard output."""
    request = RelayRequest.from_answer(json.load(sys.stdin), "the relay request")
    try:
        context = tls_listener.context(request.endpoint.credentials)
        listener = tls_listener.listening(request.endpoint, _MAX_PENDING, _FULL)
    except errors.VirtError as exc:
        detached.send({"error": exc.text})
        return 1
    detached.send({"port": listener.getsockname()[1]})
    caller = _accept_caller(listener, context)
    if caller is not None:
        with caller:
            _serve(caller, request)
    return 0


def _accept_caller(listener: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket | None:
    """Accept the first client with the right certificate, and no other client; None if the timeout
    expires."""
    callers: Queue[ssl.SSLSocket] = Queue()
    deadline, limiter = (
        time.monotonic() + CALLER_TIMEOUT_S,
        tls_listener.ConnectionLimiter(_MAX_PENDING),
    )

    def welcome(raw_socket: socket.socket, address: str) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                callers.put(_handshake(raw_socket, context))
        finally:
            limiter.release(address)

    with listener:
        while time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                return callers.get_nowait()
            if not select.select([listener], [], [], 0.05)[0]:
                continue
            stranger, (address, *_) = listener.accept()
            if limiter.acquire(address):
                args = (stranger, address)
                threading.Thread(target=welcome, args=args, daemon=True).start()
            else:
                stranger.close()
    return None


def _handshake(raw_socket: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Complete the TLS handshake. Raises OSError for any other client and after a timeout."""
    deadline = time.monotonic() + _HELLO_TIMEOUT_S
    try:
        tls_listener.prepare(raw_socket)
        raw_socket.setblocking(False)
        tls = context.wrap_socket(raw_socket, server_side=True, do_handshake_on_connect=False)
    except BaseException:
        raw_socket.close()
        raise
    try:
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError("the client presented no certificate")
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                select.select([tls], [], [], remaining_s)
            except ssl.SSLWantWriteError:
                select.select([], [tls], [], remaining_s)
    except BaseException:
        tls.close()
        raise


def _serve(caller: ssl.SSLSocket, request: RelayRequest) -> None:
    """Forward data until one side disconnects."""
    caller.settimeout(_HELLO_TIMEOUT_S)
    try:
        with _open_device(request) as inner:
            caller.sendall(reach.ACCEPTED)
            with contextlib.suppress(OSError):
                tls_listener.pump(caller, inner)
    except errors.VirtError as exc:
        kind = reach.IN_USE if isinstance(exc, reach.InUse) else reach.REFUSED
        with contextlib.suppress(OSError):
            caller.sendall(f"{kind}{exc.text}\n".encode())
    with contextlib.suppress(OSError, ValueError):
        caller.setblocking(True)
        caller.settimeout(1)
        caller.unwrap()


@contextlib.contextmanager
def _open_device(request: RelayRequest) -> Iterator[socket.socket]:
    """The guest's device as a socket. Raises VirtError."""
    local = settings.Connection(request.uri, request.username, request.password)
    with connection.connect(local) as conn:
        dom = _running(conn, request.uuid)
        opener = {reach.DISPLAY: _display, reach.SERIAL: _serial, reach.AGENT: _agent}[request.kind]
        with opener(conn, dom, request) as sock:
            yield sock


def _running(conn: libvirt.virConnect, uuid: str) -> libvirt.virDomain:
    with connection.translated():
        dom = conn.lookupByUUIDString(uuid)
        if not dom.isActive():
            raise errors.OperationFailed(f"{dom.name()} is off")
        return dom


@contextlib.contextmanager
def _display(
    _conn: libvirt.virConnect, dom: libvirt.virDomain, request: RelayRequest
) -> Iterator[socket.socket]:
    """A connection to the display without its password: the client's certificate has authenticated
    it already."""
    with connection.translated(f"open the display of {dom.name()}"):
        handle = dom.openGraphicsFD(request.number, libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH)
    with socket.socket(fileno=handle) as sock:
        yield sock


@contextlib.contextmanager
def _serial(
    conn: libvirt.virConnect, dom: libvirt.virDomain, request: RelayRequest
) -> Iterator[socket.socket]:
    """A connection to the serial port. One thread reads libvirt's stream, another one writes to
    it."""
    flags = libvirt.VIR_DOMAIN_CONSOLE_FORCE if request.force else 0
    stream = conn.newStream(0)
    try:
        with connection.translated(f"open the serial console of {dom.name()}"):
            dom.openConsole(None, stream, flags)
    except errors.VirtError as exc:
        if "Active console session" in exc.text:
            raise reach.InUse(f"the serial console of {dom.name()} is in use") from exc
        raise
    caller_end, guest_end = socket.socketpair()

    def up() -> None:
        with contextlib.suppress(OSError, libvirt.libvirtError):
            while data := guest_end.recv(_CHUNK_BYTES):
                while data:
                    data = data[stream.send(data) :]
        with contextlib.suppress(libvirt.libvirtError):
            stream.abort()

    def down() -> None:
        with contextlib.suppress(OSError, libvirt.libvirtError):
            while data := stream.recv(_CHUNK_BYTES):
                guest_end.sendall(data)
        with contextlib.suppress(OSError):
            guest_end.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=thread, daemon=True) for thread in (up, down)]
    for thread in threads:
        thread.start()
    with caller_end, guest_end:
        yield caller_end
        with contextlib.suppress(OSError):
            guest_end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(timeout=2)


@contextlib.contextmanager
def _agent(
    _conn: libvirt.virConnect, dom: libvirt.virDomain, _request: RelayRequest
) -> Iterator[socket.socket]:
    """A connection to the guest's agent. The requests are interpreted here and never forwarded as
    they are."""
    guest_agent = agent.for_domain(dom)
    caller_end, guest_end = socket.socketpair()
    thread = threading.Thread(target=session.serve, args=(guest_end, guest_agent), daemon=True)
    thread.start()
    with caller_end:
        yield caller_end
    thread.join(_CLEANUP_TIMEOUT_S)
