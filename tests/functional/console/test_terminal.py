"""A terminal and a TLS connection: which of them ends the session, and how that is reported."""

import contextlib
import fcntl
import os
import pty
import socket
import ssl
import struct
import sys
import termios
import threading
import types

import pytest

pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console.master import console, guest_connection, terminal
from saltvirt.fleet import requester
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.clock import until

FOUND = guest_connection.GuestConnection(
    "web1", "u", "hv1", "serial", "pty", "127.0.0.1", 1, "", "", ""
)
FLEET = types.SimpleNamespace(opts={"__cli": requester.COMMAND_LINE}, disconnect=lambda: None)


@pytest.fixture(scope="module")
def contexts():
    """(the hypervisor's, the master's)."""
    theirs = own_pair.generate(reach.CERTIFICATE_NAME, certs.SERVER)
    ours = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT)

    def credentials(pair, reader):
        return tls_listener.TlsCredentials(
            pair.authority, pair.certificate, pair.key, reader.authority
        )

    return (
        tls_listener.context(credentials(theirs, ours)),
        tls_listener.context(credentials(ours, theirs), ssl.PROTOCOL_TLS_CLIENT),
    )


@pytest.fixture
def line(contexts):
    """(the hypervisor's end, the master's)."""
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        plain = stack.enter_context(socket.create_connection(door.getsockname()))
        caller = stack.enter_context(door.accept()[0])
        tls_listener.prepare(caller)
        found = []

        def shake():
            found.append(contexts[0].wrap_socket(caller, server_side=True))

        other = threading.Thread(target=shake)
        other.start()
        ours = stack.enter_context(
            contexts[1].wrap_socket(plain, server_hostname=reach.CERTIFICATE_NAME)
        )
        other.join()
        yield stack.enter_context(found[0]), ours


@pytest.fixture
def screen():
    """(the user's side, the Terminal)."""
    ours, theirs = pty.openpty()
    yield ours, terminal.Terminal(theirs, theirs)
    for one in (ours, theirs):
        with contextlib.suppress(OSError):
            os.close(one)


@pytest.fixture
def ended(line, screen, monkeypatch):
    """Runs the verb on a Terminal until it has failed: why."""

    def run(own=screen[1]):
        monkeypatch.setattr(terminal, "from_stdio", lambda: own)
        with pytest.raises(errors.VirtError) as caught:
            console.run(FLEET, "web1", False, "^]")
        return caught.value.text

    monkeypatch.setattr(guest_connection, "request_relay", lambda *_args, **_options: FOUND)
    monkeypatch.setattr(guest_connection, "connect", lambda _found: line[1])
    return run


def _once_attached(own, then):
    """Does it in a thread, which is returned."""

    def wait():
        until(lambda: not termios.tcgetattr(own.typed)[3] & termios.ICANON, "it is attached")
        then()

    found = threading.Thread(target=wait, daemon=True)
    found.start()
    return found


def _waiting(end):
    """How many bytes nobody has read."""
    return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_line_that_ends_without_a_last_word_of_tls_has_ended(line, ended, monkeypatch):
    monkeypatch.setattr(console.find, "locate", lambda _fleet, _name: ("hv2", "running"))
    line[0].shutdown(socket.SHUT_RDWR)  # the socket alone
    assert ended().endswith("has ended: the guest is on hv2 now (running)")


def test_a_hypervisor_that_has_gone_when_something_is_typed(line, screen, ended):
    def go():
        until(lambda: not _waiting(line[1]), "what the guest has said is read")
        # who closes it so sends a reset
        line[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line[0].close()
        os.write(screen[0], b"x")

    # the line is not read while nobody takes what the guest has said
    reader, full = os.pipe2(os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    line[0].sendall(b"words of the guest")
    other = _once_attached(screen[1], go)
    try:
        why = ended(terminal.Terminal(screen[1].typed, full))
    finally:
        os.close(reader)
        os.close(full)
    other.join()
    assert why.startswith("the hypervisor is unreachable: ")


def test_a_terminal_that_shows_nothing_any_more_has_gone(line, screen, ended):
    seen, shown = pty.openpty()
    os.close(seen)
    line[0].sendall(b"words of the guest")
    try:
        assert ended(terminal.Terminal(screen[1].typed, shown)) == "the terminal has gone"
    finally:
        os.close(shown)


def test_a_terminal_that_goes_before_the_console_is_there_has_gone(screen, ended):
    os.close(screen[0])
    assert ended() == "the terminal has gone"


def test_a_terminal_that_cannot_be_read_has_gone(screen, ended):
    ours, own = screen
    os.close(own.typed)
    # reading from this end fails then, where the other one only ends
    assert ended(terminal.Terminal(ours, ours)) == "the terminal has gone"


def test_what_is_typed_waits_for_a_line_that_takes_nothing_and_all_of_it_goes(line, screen):
    (there, here), (ours, own) = line, screen
    there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    words = b"words that are typed " * 20_000
    heard = bytearray()

    def hear():
        while len(heard) < len(words):
            heard.extend(there.recv(65536))
        os.write(ours, b"\x1d")

    def type_():
        other, left = threading.Thread(target=hear, daemon=True), words
        while left:
            left = left[os.write(ours, left[:1024]) :]
            if len(words) - len(left) > 64 * 1024 and other.ident is None:
                other.start()

    other = _once_attached(own, type_)
    with terminal.raw(own) as came:
        assert terminal.attach(here, own, b"\x1d", came) == terminal.ESCAPED
    other.join()
    assert bytes(heard) == words
