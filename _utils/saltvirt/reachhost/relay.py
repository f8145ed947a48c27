"""The program that lets one caller reach one guest's screen or serial port: it waits for him at a
door, opens what is the guest's by libvirt at that moment, and hands on what both say.

No port of a display is asked: libvirt hands out the connection of that guest, by its UUID. It ends
when nobody came, when the guest stops, and when the caller goes.
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

from saltvirt import doors, errors, settings
from saltvirt.answers import reach
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.reachhost import agent, session
from saltvirt.wire import Fact

MODULE = "reachhost.relay"
PORT, PORTS = 10840, 64
# so long is waited for the caller
WAIT_S = 40
# who may be connected and has not shown his certificate yet, and for how long
_STRANGERS = 16
_HELLO_S = 10
_CHUNK_BYTES = 64 * 1024
# what a caller who is gone has left half in a guest is taken away
_CLEANS_S = 120
# the first line that the caller gets
_OK, _NO = b"ok\n", "no "
_FULL = "so many screens and serial ports are looked at from here"


@dataclass(frozen=True)
class RelayRequest(Fact):
    """uuid: of the guest. kind: DISPLAY, SERIAL or AGENT of reach. number: of the screen. force: a
    serial port is taken from whom has it. uri, username, password: of libvirt. door: where, and for
    whom."""

    uuid: str
    kind: str
    number: int
    force: bool
    uri: str | None
    username: str | None
    password: str | None
    door: doors.Door


def port(get: settings.Get) -> int:
    """The first of the ports, by the host's configuration. Raises InvalidInput."""
    return settings.integer(get, "reach:port", PORT, most=65535 - PORTS)


def main(_words: list[str]) -> int:
    """The program: what is asked on its standard input; one line of JSON on its standard output
    with the port, or why not."""
    asked = RelayRequest.from_answer(json.load(sys.stdin), "what is to be reached")
    try:
        context = doors.context(asked.door.credentials)
        listener = doors.listening(asked.door, _STRANGERS, _FULL)
    except errors.VirtError as exc:
        print(json.dumps({"error": exc.text}), flush=True)
        return 1
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    caller = _caller(listener, context)
    if caller is not None:
        with caller:
            _serve(caller, asked)
    return 0


def _caller(listener: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket | None:
    """The first who shows the right certificate; nobody is let in after him."""
    found: Queue[ssl.SSLSocket] = Queue()
    until, strangers = time.monotonic() + WAIT_S, doors.Strangers(_STRANGERS)

    def welcome(stranger: socket.socket, address: str) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                found.put(_secured(stranger, context))
        finally:
            strangers.leave(address)

    with listener:
        while time.monotonic() < until:
            with contextlib.suppress(Empty):
                return found.get_nowait()
            if not select.select([listener], [], [], 0.05)[0]:
                continue
            stranger, (address, *_) = listener.accept()
            if strangers.come(address):
                args = (stranger, address)
                threading.Thread(target=welcome, args=args, daemon=True).start()
            else:
                stranger.close()
    return None


def _secured(stranger: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Raises OSError for anybody else, and for one who takes too long, however he does it."""
    until = time.monotonic() + _HELLO_S
    try:
        doors.prepare(stranger)
        stranger.setblocking(False)
        tls = context.wrap_socket(stranger, server_side=True, do_handshake_on_connect=False)
    except BaseException:
        stranger.close()
        raise
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("no certificate was shown")
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                select.select([tls], [], [], left)
            except ssl.SSLWantWriteError:
                select.select([], [tls], [], left)
    except BaseException:
        tls.close()
        raise


def _serve(caller: ssl.SSLSocket, asked: RelayRequest) -> None:
    """Until one side ends."""
    caller.settimeout(_HELLO_S)
    try:
        with _opened(asked) as inner:
            caller.sendall(_OK)
            with contextlib.suppress(OSError):
                doors.pump(caller, inner)
    except errors.VirtError as exc:
        with contextlib.suppress(OSError):
            caller.sendall(f"{_NO}{exc.text}\n".encode())
    with contextlib.suppress(OSError, ValueError):
        caller.setblocking(True)
        caller.settimeout(1)
        caller.unwrap()


@contextlib.contextmanager
def _opened(asked: RelayRequest) -> Iterator[socket.socket]:
    """What is the guest's, as a socket. Raises VirtError."""
    local = settings.Connection(asked.uri, asked.username, asked.password)
    with connection.connect(local) as conn:
        dom = _running(conn, asked.uuid)
        opened = {reach.DISPLAY: _display, reach.SERIAL: _serial, reach.AGENT: _agent}[asked.kind]
        with opened(conn, dom, asked) as found:
            yield found


def _running(conn: libvirt.virConnect, uuid: str) -> libvirt.virDomain:
    with connection.translated():
        dom = conn.lookupByUUIDString(uuid)
        if not dom.isActive():
            raise errors.OperationFailed(f"{dom.name()} is off")
        return dom


@contextlib.contextmanager
def _display(
    _conn: libvirt.virConnect, dom: libvirt.virDomain, asked: RelayRequest
) -> Iterator[socket.socket]:
    """That of a screen, without its password: who is let in here has been asked for more."""
    with connection.translated(f"open the display of {dom.name()}"):
        handle = dom.openGraphicsFD(asked.number, libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH)
    with socket.socket(fileno=handle) as found:
        yield found


@contextlib.contextmanager
def _serial(
    conn: libvirt.virConnect, dom: libvirt.virDomain, asked: RelayRequest
) -> Iterator[socket.socket]:
    """A serial port's: libvirt's stream is read by one thread and written by another."""
    flags = libvirt.VIR_DOMAIN_CONSOLE_FORCE if asked.force else 0
    stream = conn.newStream(0)
    try:
        with connection.translated(f"open the serial console of {dom.name()}"):
            dom.openConsole(None, stream, flags)
    except errors.VirtError as exc:
        if "Active console session" in exc.text:
            raise errors.OperationFailed(
                f"somebody else has the serial console of {dom.name()}"
            ) from exc
        raise
    ours, theirs = socket.socketpair()

    def up() -> None:
        with contextlib.suppress(OSError, libvirt.libvirtError):
            while data := theirs.recv(_CHUNK_BYTES):
                while data:
                    data = data[stream.send(data) :]
        with contextlib.suppress(libvirt.libvirtError):
            stream.abort()

    def down() -> None:
        with contextlib.suppress(OSError, libvirt.libvirtError):
            while data := stream.recv(_CHUNK_BYTES):
                theirs.sendall(data)
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=one, daemon=True) for one in (up, down)]
    for one in threads:
        one.start()
    with ours, theirs:
        yield ours
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)
        for one in threads:
            one.join(timeout=2)


@contextlib.contextmanager
def _agent(
    _conn: libvirt.virConnect, dom: libvirt.virDomain, _asked: RelayRequest
) -> Iterator[socket.socket]:
    """That of a guest's agent: what the caller says is understood here, and never handed on."""
    found = agent.of_domain(dom)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=session.serve, args=(theirs, found), daemon=True)
    thread.start()
    with ours:
        yield ours
    thread.join(_CLEANS_S)
