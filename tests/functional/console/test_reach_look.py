"""The checks of a hypervisor before it connects a client to a guest, and the process that it
starts; with libvirt's test driver."""

import contextlib
import io
import json
import socket
import ssl
import threading
from dataclasses import replace
from queue import Queue
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("cryptography")

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console import protocol
from saltvirt.console.guestagent.agent_request import Command
from saltvirt.console.host import agent, launch, relay
from saltvirt.console.host.relay import RelayRequest
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from tests.clock import until
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture
from tests.functional.reached import GUEST

NODE = "<node><cpu><mhz>1</mhz><model>x</model><active>4</active><nodes>1</nodes></cpu></node>"
DOMAIN = """<domain type='test'><name>{name}</name><memory>65536</memory>
<os><type>hvm</type></os><devices>{devices}</devices></domain>"""
CHANNEL = """<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'{state}/>
</channel>"""


@pytest.fixture
def conn(tmp_path):
    (tmp_path / "node.xml").write_text(NODE)
    found = libvirt.open(f"test://{tmp_path}/node.xml")
    yield found
    found.close()


@pytest.fixture
def guest(conn):
    def runs(devices="", name="web1"):
        dom = conn.defineXML(DOMAIN.format(name=name, devices=devices))
        dom.create()
        return dom

    return runs


SCREENS = "<graphics type='vnc'/><graphics type='spice'/>"


@pytest.mark.parametrize("devices, kind, number, type_", [
    (SCREENS, reach.DISPLAY, 0, "vnc"), (SCREENS, reach.DISPLAY, 1, "spice"),
    ("<console type='pty'/>", reach.SERIAL, 0, "pty"),
    ("<serial type='pty'/>", reach.SERIAL, 0, "pty"),
])  # fmt: skip
def test_what_can_be_reached(conn, guest, devices, kind, number, type_):
    dom = guest(devices)
    assert launch.probe(conn, "web1", kind, number) == (dom.UUIDString(), type_)


def test_an_agent_that_answers_can_be_reached(conn, guest, monkeypatch):
    """The test driver says of none that it does."""
    there = agent.stats.tree

    def answers(dom):
        found = there(dom)
        found.find("devices/channel/target").set("state", "connected")
        return found

    monkeypatch.setattr(agent.stats, "tree", answers)
    dom = guest(CHANNEL.format(state=""))
    assert launch.probe(conn, "web1", reach.AGENT) == (dom.UUIDString(), reach.AGENT)


@pytest.mark.parametrize("devices, kind, number, error, words", [
    (SCREENS, reach.DISPLAY, 2, errors.OperationFailed, "web1 has no display 2"),
    ("", reach.DISPLAY, 0, errors.OperationFailed, "web1 has no display$"),
    ("", reach.SERIAL, 0, errors.OperationFailed, "no serial console that libvirt can open"),
    ("<serial type='null'/>", reach.SERIAL, 0, errors.OperationFailed, "no serial console"),
    ("", reach.AGENT, 0, errors.Unsupported, "add it with virt.update web1 guest_agent=True"),
    (CHANNEL.format(state=""), reach.AGENT, 0, errors.Unsupported, "no guest agent responds in"),
])  # fmt: skip
def test_what_a_guest_does_not_have_is_named(conn, guest, devices, kind, number, error, words):
    guest(devices)
    with pytest.raises(error, match=words):
        launch.probe(conn, "web1", kind, number)


def test_one_that_is_off_is_not_reached(conn):
    dom = conn.defineXML(DOMAIN.format(name="off1", devices=SCREENS))
    for kind in (reach.DISPLAY, reach.AGENT, reach.SERIAL):
        with pytest.raises(errors.OperationFailed, match="off1 is off: start it first"):
            launch.probe(conn, "off1", kind)
    with pytest.raises(errors.Refused, match="off1 is off: start it first"):
        agent.for_domain(dom)


def test_a_binding_without_what_asks_agents_is_named(guest, monkeypatch):
    monkeypatch.setattr(agent, "libvirt_qemu", None)
    with pytest.raises(errors.Unsupported, match="no libvirt_qemu"):
        agent.for_domain(guest())


def test_an_agent_that_libvirt_cannot_ask(guest, monkeypatch):
    """The test driver has no agents: its own words, and those of one that hangs."""
    monkeypatch.setattr(agent, "require", lambda dom, name: None)
    one = agent.for_domain(guest())
    with pytest.raises(errors.VirtError) as raised:
        one.ask("guest-ping")
    assert "does not respond" not in raised.value.text

    def hangs(_dom, _text, _timeout_s, _flags):
        exc = libvirt.libvirtError("Guest agent is not responding")
        exc.err = (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, 0, "x", 2, None, None, None, 0, 0)
        raise exc

    monkeypatch.setattr(agent.libvirt_qemu, "qemuAgentCommand", hangs)
    with pytest.raises(errors.ConnectionFailed, match="guest agent of web1 does not respond"):
        one.ask("guest-ping")


# -- the program -----------------------------------------------------------------------------------


class Begun:
    """The program in a thread of this process, and its caller, whom it knows."""

    def __init__(self, monkeypatch, first_port=None, **asked):
        own, caller = (
            own_pair.generate(reach.CERTIFICATE_NAME, use) for use in (certs.SERVER, certs.CLIENT)
        )
        shown = tls_listener.TlsCredentials(
            own.authority, own.certificate, own.key, caller.authority
        )
        self.caller = replace(
            shown, certificate=caller.certificate, key=caller.key, reader=own.authority
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = first_port or free.getsockname()[1]
        whole = {"uuid": "", "kind": reach.DISPLAY, "number": 0, "force": False, "username": None,
                 "password": None, "uri": "", **asked}  # fmt: skip
        told = RelayRequest(
            **whole, endpoint=tls_listener.TlsEndpoint("127.0.0.1", port, 1, shown)
        ).to_answer()
        said, self.codes = Queue(), []
        stdin = io.StringIO(json.dumps(told))
        monkeypatch.setattr(relay, "sys", SimpleNamespace(stdin=stdin))
        monkeypatch.setattr(relay.detached, "send", said.put)
        self.thread = threading.Thread(target=lambda: self.codes.append(relay.main([])))
        self.thread.start()
        self.said = said.get(timeout=60)

    def line(self, known=None):
        """Of one who shows this certificate, or the caller's."""
        found = socket.create_connection(("127.0.0.1", self.said["port"]), 30)
        context = tls_listener.context(known or self.caller, ssl.PROTOCOL_TLS_CLIENT)
        return context.wrap_socket(found, server_hostname=reach.CERTIFICATE_NAME)

    def refused(self):
        """What the caller is told, which is all."""
        with self.line() as line:
            said = b""
            with contextlib.suppress(OSError):
                while more := line.recv(4096):
                    said += more
        self.end()
        return said

    def end(self):
        self.thread.join(60)
        assert self.codes == [0] and not self.thread.is_alive()


def test_a_program_that_finds_no_port_says_so(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = Begun(monkeypatch, taken.getsockname()[1])
        one.thread.join(60)
    assert one.codes == [1] and "are in use" in one.said["error"]


def test_nobody_but_the_caller_is_let_in_however_slow(monkeypatch, conn, guest):
    dom = guest()
    one = Begun(monkeypatch, uri=conn.getURI(), uuid=dom.UUIDString())
    stranger = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT)
    shown = replace(one.caller, certificate=stranger.certificate, key=stranger.key)
    with contextlib.suppress(OSError), one.line(shown) as line:
        assert line.recv(1) == b""
    slow = [socket.create_connection(("127.0.0.1", one.said["port"]), 30) for _ in range(3)]
    slow[0].sendall(b"\x16")
    slow[1].close()
    assert one.refused().startswith(b"no "), "the test driver opens no display"
    for line in slow:
        line.close()


def test_who_says_nothing_is_waited_for_a_while(monkeypatch):
    monkeypatch.setattr(relay, "_HELLO_TIMEOUT_S", 0.2)
    one = Begun(monkeypatch, uri="test:///default")
    with (
        socket.create_connection(("127.0.0.1", one.said["port"]), 30) as silent,
        contextlib.suppress(ConnectionResetError),
    ):
        assert silent.recv(1) == b""
    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=lambda: float("inf")))
    one.end()


@pytest.mark.parametrize("kind, off, words", [
    (reach.DISPLAY, True, b"no reach1 is off\n"),
    (reach.DISPLAY, False, b"no cannot open the display of reach1: "),
    (reach.SERIAL, False, b"no cannot open the serial console of reach1: "),
    (reach.AGENT, False, b"no reach1 has no channel for a guest agent"),
])  # fmt: skip
def test_the_caller_is_told_why_he_does_not_reach_it(monkeypatch, kind, off, words):
    """By the one libvirt of a process that another connection has, too."""
    conn = libvirt.open("test:///default")
    dom = conn.defineXML(DOMAIN.format(name="reach1", devices=""))
    try:
        if not off:
            dom.create()
        one = Begun(monkeypatch, uri="test:///default", uuid=dom.UUIDString(), kind=kind)
        assert one.refused().startswith(words)
    finally:
        if dom.isActive():
            dom.destroy()
        dom.undefine()
        conn.close()


def test_who_comes_while_too_many_are_there_is_sent_away(monkeypatch):
    monkeypatch.setattr(relay, "_MAX_PENDING", 1)
    one = Begun(monkeypatch, uri="test:///default", uuid="2b3c4d5e-0000-4000-8000-000000000000")
    at = ("127.0.0.1", one.said["port"])
    with (
        socket.create_connection(at, 30),
        socket.create_connection(at, 30) as second,
        contextlib.suppress(ConnectionResetError),
    ):
        assert second.recv(1) == b""
    assert until(lambda: _said(one), "the first has gone").startswith(b"no ")


def _said(one):
    with contextlib.suppress(OSError):
        return one.refused()


def test_one_address_keeps_the_caller_from_nothing_however_often_it_comes(monkeypatch):
    monkeypatch.setattr(relay, "_MAX_PENDING", 8)
    one = Begun(monkeypatch, uri="test:///default", uuid="2b3c4d5e-0000-4000-8000-000000000000")
    with contextlib.ExitStack() as held:
        for _ in range(8):
            at = ("127.0.0.1", one.said["port"])
            held.enter_context(socket.create_connection(at, 30, ("127.0.0.2", 0)))
        assert one.refused().startswith(b"no ")


def test_what_is_said_to_an_agent_is_understood_and_not_handed_on(monkeypatch):
    """The test driver has no agents, and says so."""
    monkeypatch.setattr(agent, "require", lambda dom, name: None)
    conn = libvirt.open("test:///default")
    dom = conn.defineXML(DOMAIN.format(name="reach2", devices=""))
    dom.create()
    try:
        uuid = dom.UUIDString()
        one = Begun(monkeypatch, uri="test:///default", uuid=uuid, kind=reach.AGENT)
        with one.line() as line:
            assert heard(line, b"ok\n") == b"ok\n"
            talk = protocol.Stream(line)
            with pytest.raises(errors.VirtError, match="not supported"):
                talk.ask("exec", Command(("true",)))
            with pytest.raises(errors.InvalidInput, match="older version of Salt Virt"):
                talk.ask("guest-shutdown")
        one.end()
    finally:
        dom.destroy()
        dom.undefine()
        conn.close()


def test_a_guest_that_is_gone_meanwhile_is_not_reached(monkeypatch, conn):
    one = Begun(monkeypatch, uri=conn.getURI(), uuid="2b3c4d5e-0000-4000-8000-000000000000")
    said = one.refused()
    assert said.startswith(b"no ") and said.count(b"\n") == 1


def heard(line, words):
    """All that is said until it has these words in it."""
    said = b""
    while words not in said:
        more = line.recv(4096)
        assert more, said
        said += more
    return said


def typed(line, said):
    """ESC takes SeaBIOS' menu, once it offers it."""
    line.sendall(b"\x1b")
    with contextlib.suppress(TimeoutError):
        said += line.recv(4096)
    return b"boot device" in said


def test_what_the_guest_says_is_handed_on_both_ways(monkeypatch, libvirtd):  # noqa: F811
    conn = libvirt.open(libvirtd.uri)
    dom = conn.createXML(GUEST.format(name="relay1"))
    more = {"uri": libvirtd.uri, "uuid": dom.UUIDString()}
    try:
        display = Begun(monkeypatch, **more)
        with display.line() as line:
            assert heard(line, b".008\n") == b"ok\nRFB 003.008\n"
        display.end()
        serial = Begun(monkeypatch, kind=reach.SERIAL, **more)
        with serial.line() as line:
            heard(line, b"ok\n")
            other = Begun(monkeypatch, kind=reach.SERIAL, **more)
            assert other.refused() == b"busy the serial console of relay1 is in use\n"
            line.settimeout(0.5)
            said = bytearray()
            until(lambda: typed(line, said), "SeaBIOS' menu")
            dom.destroy()
            with contextlib.suppress(OSError):
                while line.recv(4096):
                    pass
        serial.end()
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            dom.destroy()
        conn.close()
