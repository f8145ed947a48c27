"""A guest's display and serial port through the master: real QEMU, libvirt's connection to the
display, TLS, WebSocket; and clients without a valid ticket."""

import base64
import contextlib
import dataclasses
import importlib.util
import json
import os
import socket
import ssl
import threading
import time
import zlib

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("tornado")
pytest.importorskip("cryptography")

from tornado.httpclient import HTTPClientError

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console.host import relay
from saltvirt.console.master import guest_connection, tickets, verbs
from saltvirt.host.domain import screenshot
from saltvirt.operations.access import owners
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import tls_listener
from saltvirt.web import proxy
from tests.clock import until
from tests.functional.conftest import REPOSITORY
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture
from tests.functional.reached import GUEST, Browser, Reached
from tests.lab import process

NOT_GOOD = {"error": "the ticket is invalid: it was used, or is older than 30 s"}


@pytest.fixture
def cloud(libvirtd, tmp_path):  # noqa: F811
    found = Reached(libvirtd.uri, tmp_path)
    until(lambda: _listens(found.port), "the proxy listens")
    yield found
    found.close()


@pytest.fixture
def guest(cloud):
    return cloud.guest()


@pytest.fixture
def browser(cloud):
    with contextlib.ExitStack() as stack:

        def opened(*options):
            found = Browser(cloud.url, *options)
            stack.callback(found.close)
            return found

        yield opened


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True


def _relays():
    """Programs of console.host.relay that a test of this process has begun, and that run now."""
    found = []
    for pid in process.children(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"console.host.relay" in file.read():
                found.append(pid)
    return found


@pytest.mark.usefixtures("guest")
def test_a_display_without_its_password_and_without_a_port(cloud, browser):
    one = browser()
    secret = cloud.ticket()
    assert cloud.said["web1"]["type"] == "vnc"
    assert one.begin(secret) == {"guest": "web1", "kind": "display", "type": "vnc"}
    assert one.until(b"\n") == b"RFB 003.008\n"
    one.say(b"RFB 003.008\n")
    assert one.until(b"\x01\x01") == b"\x01\x01"  # one kind of security: none


@pytest.mark.usefixtures("guest")
def test_a_serial_port_both_ways(cloud, browser):
    one = browser()
    assert one.begin(cloud.ticket(kind="serial"))["type"] == "pty"
    one.say(b"\x1b")  # SeaBIOS offers its menu by the serial port, and ESC takes it
    one.until(b"boot device")
    two = browser()
    said = two.begin(cloud.ticket(kind="serial"))
    assert said == {"error": "hv1: the serial console of web1 is in use", "in_use": True}
    three = browser()
    assert "error" not in three.begin(cloud.ticket(kind="serial", force=True))
    assert one.end[0] == 1000


def test_it_ends_with_the_guest_and_leaves_no_process(cloud, guest, browser):
    before = set(_relays())
    one, two = browser(), browser()
    for line, kind in ((one, "display"), (two, "serial")):
        assert "error" not in line.begin(cloud.ticket(kind=kind))
    assert len(set(_relays()) - before) == 2
    guest.destroy()
    assert one.end == (1000, "the guest has closed the connection")
    assert two.end == (1000, "the guest has closed the connection")
    until(lambda: not set(_relays()) - before, "no process")


@pytest.mark.usefixtures("guest")
def test_it_ends_with_the_browser(cloud, browser):
    before = set(_relays())
    one = browser()
    assert "error" not in one.begin(cloud.ticket())
    assert set(_relays()) - before
    one.close()
    until(lambda: not set(_relays()) - before, "no process")
    assert cloud.proxy.users == {}


@pytest.mark.usefixtures("guest")
def test_a_ticket_is_good_once_whoever_comes_at_once(cloud, browser):
    secret = cloud.ticket()
    found, barrier = [], threading.Barrier(8)

    def take():
        barrier.wait()
        with contextlib.suppress(errors.Denied):
            found.append(tickets.redeem(cloud.opts, secret))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 1
    assert browser().begin(secret) == NOT_GOOD


@pytest.mark.usefixtures("guest")
def test_what_was_told_about_a_ticket_opens_nothing(cloud, browser):
    """Its digest is in arguments, events and the name of a file."""
    secret = cloud.ticket()
    told = tickets.digest(secret)
    assert browser().begin(told) == NOT_GOOD
    assert browser().begin("A" * 43) == NOT_GOOD
    assert browser().begin("../../../etc/passwd") == NOT_GOOD
    assert secret not in json.dumps(cloud.said) and secret not in str(cloud.fleet.asked)
    path = tickets.folder(cloud.opts) / told
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert secret not in path.read_text() and "PRIVATE KEY" not in str(cloud.fleet.asked)
    assert "error" not in browser().begin(secret)


@pytest.mark.usefixtures("guest")
def test_a_ticket_ends(cloud, browser, monkeypatch):
    secret, now = cloud.ticket(), time.time()
    monkeypatch.setattr(tickets.time, "time", lambda: now + 31)
    assert browser().begin(secret) == NOT_GOOD
    monkeypatch.setattr(tickets.time, "time", lambda: now - 3600)
    secret = cloud.ticket()
    monkeypatch.setattr(tickets.time, "time", lambda: now - 7200)
    assert browser().begin(secret) == NOT_GOOD  # nor by a clock that was set back


def test_a_guest_of_the_same_name_is_another_one(cloud, guest, browser):
    secret = cloud.ticket()
    guest.destroy()
    cloud.guest()  # made anew, perhaps by somebody else, at the same port
    assert "error" in browser().begin(secret)


def test_a_guest_that_is_off_or_nowhere(cloud):
    with pytest.raises(errors.NotFound, match="no guest 'web9'"):
        cloud.ticket("web9")
    dom = cloud.conn.defineXML(GUEST.format(name="off1"))
    try:
        with pytest.raises(errors.OperationFailed, match=r"salt-run virt\.start off1"):
            cloud.ticket("off1")
    finally:
        dom.undefine()
    assert not [one for one in os.listdir(tickets.folder(cloud.opts)) if one != ".lock"]


def test_who_may_no_more_is_shown_out(cloud, guest, browser, monkeypatch):
    monkeypatch.setattr(proxy, "RECHECK_S", 0.2)
    cloud.owned(guest, "anna")
    one = browser()
    assert "error" not in one.begin(cloud.ticket(user="anna"))
    owners.set_owner(cloud.opts, guest.UUIDString(), "web1", "bob")
    assert one.end == (4001, "anna may no longer connect to web1")
    # and by a ticket that was asked for before
    assert browser().begin(cloud.ticket(user="anna")) == {
        "error": "anna may no longer connect to web1"
    }
    assert "error" not in browser().begin(cloud.ticket(user="bob"))


@pytest.mark.parametrize("origin", [
    "https://evil.example.com", "null", "http://127.0.0.1", "http://127.0.0.1:1", "file://",
    "http://127.0.0.1:{port}.evil.example.com", "http://evil@127.0.0.1:{port}", None,
])  # fmt: skip
def test_the_page_of_another_site_does_not_connect(cloud, origin):
    with pytest.raises(HTTPClientError) as raised:
        Browser(cloud.url, origin and origin.format(port=cloud.port))
    assert raised.value.code == 403


def test_what_a_proxy_adds_decides_nothing():
    for allowed in ((), ("https://cloud.example.com:8000",)):
        assert proxy.same_origin(
            "https://cloud.example.com:8000", "cloud.example.com:8000", allowed
        )
        assert not proxy.same_origin("https://evil.example.com", "cloud.example.com:8000", allowed)
    assert not proxy.same_origin("https://evil.example.com", "evil.example.com",
                                 ("https://cloud.example.com",))  # fmt: skip
    assert not proxy.same_origin("https://", "", ())


def test_forwarded_headers_open_nothing(cloud):
    request = (
        "GET /reach HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        "Origin: https://evil.example.com\r\nX-Forwarded-Host: evil.example.com\r\n"
        "X-Forwarded-For: 127.0.0.1\r\nX-Real-Ip: 127.0.0.1\r\nForwarded: host=evil.example.com\r\n"
        "X-Forwarded-Proto: https\r\nX-Auth-Token: x\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", cloud.port), 60) as line:
        line.sendall(request.encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 403")


@pytest.mark.usefixtures("guest")
def test_who_says_nothing_is_shown_out_and_hinders_nobody(cloud, browser, monkeypatch):
    monkeypatch.setattr(proxy, "MAX_PENDING", 4)
    monkeypatch.setattr(proxy, "_HELLO_TIMEOUT_S", 2)
    assert browser().end == (1000, "no ticket was sent")
    monkeypatch.setattr(proxy, "_HELLO_TIMEOUT_S", 60)
    silent = [browser() for _ in range(4)]
    until(lambda: cloud.proxy.strangers == 4, "they are known to be there")
    with pytest.raises(HTTPClientError) as raised:
        browser()
    assert raised.value.code == 503
    for one in silent:
        one.close()
    until(lambda: cloud.proxy.strangers == 0, "they are gone")
    secret = cloud.ticket()
    assert "error" not in browser().begin(secret)
    assert cloud.proxy.strangers == 0


@pytest.mark.parametrize("first", [b"\0" * 100, "x" * 300, "", "{}", '{"ticket": 1}'])
def test_a_first_message_that_is_no_ticket(cloud, browser, first):
    one = browser()
    one.say(first)
    assert "error" in json.loads(one.receive())
    assert one.end[0] == 4001
    assert cloud.proxy.strangers == 0


def test_a_second_message_before_the_answer_ends_it(cloud, browser):
    one = browser()
    for word in ("A" * 43, "B" * 43, "C" * 43):
        with contextlib.suppress(Exception):
            one.say(word)
    heard = []
    while (more := one.receive()) is not None:
        heard.append(json.loads(more))
    assert heard == [NOT_GOOD]


@pytest.mark.usefixtures("guest")
def test_a_browser_that_goes_too_early_leaves_nothing(cloud, browser):
    """Without a word, while its ticket is looked at."""
    rules, going, before = cloud.proxy.rules, threading.Event(), set(_relays())

    def slowly(secret):
        going.wait(60)
        return rules.redeem(secret)

    cloud.proxy.rules = dataclasses.replace(rules, redeem=slowly)
    secret = cloud.ticket(user="anna")
    one = browser()
    one.say(secret)
    one.line.protocol.stream.close()
    going.set()
    path = tickets.folder(cloud.opts) / tickets.digest(secret)
    until(lambda: not path.exists(), "it was used all the same")
    until(lambda: (cloud.proxy.users, cloud.proxy.strangers) == ({}, 0), "nobody is counted")
    until(lambda: not set(_relays()) - before, "no process")


@pytest.mark.usefixtures("guest")
def test_a_user_has_a_few_tickets_at_a_time(cloud):
    before = set(_relays())
    for _ in range(tickets.MAX_PER_USER):
        cloud.ticket(user="anna")
    asked = len(cloud.fleet.asked)
    with pytest.raises(errors.OperationFailed, match="8 unused tickets: wait 30 s"):
        cloud.ticket(user="anna")
    assert len(cloud.fleet.asked) == asked  # no host is asked for one that is too many
    cloud.ticket(user="bob")
    until(lambda: len(set(_relays()) - before) == tickets.MAX_PER_USER + 1, "they wait")
    for one in set(_relays()) - before:
        os.kill(one, 15)


@pytest.mark.parametrize("digest", [None, "", "x", "../" + "a" * 61, "A" * 64, 5, ["a" * 64]])
def test_a_digest_that_is_none(cloud, digest):
    with pytest.raises(errors.InvalidInput, match="digest must be the SHA-256"):
        verbs.ticket(cloud.fleet, None, "web1", "display", digest)


class _Liar:
    """A hypervisor that answers of something else, and the master's 22."""

    opts: dict

    def __init__(self, fleet, **lies):
        self.opts, self._fleet, self._lies = fleet.opts, fleet, lies

    def __getattr__(self, name):
        return getattr(self._fleet, name)

    def call(self, host, fun, kwarg, **options):
        return {**self._fleet.call(host, fun, kwarg, **options), **self._lies}


@pytest.mark.usefixtures("guest")
def test_a_hypervisor_that_lies_reaches_nothing_of_the_masters(cloud):
    """The address is the master's own knowledge; what is there has to show a certificate that this
    hypervisor alone has, and gets no byte before."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as other:  # as sshd: it speaks first

        def answer():
            line, _ = other.accept()
            with line:
                line.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                heard.append(line.recv(1000))

        thread = threading.Thread(target=answer)
        thread.start()
        liar = _Liar(cloud.fleet, port=other.getsockname()[1], address="10.0.0.1", host="10.0.0.1")
        found = guest_connection.request_relay(liar, "web1", "display")
        assert found.address == "127.0.0.1"  # virt:reach:addresses
        with pytest.raises(errors.ConnectionFailed, match="cannot connect to hv1"):
            guest_connection.connect(found)
        thread.join()
    assert heard[0][:1] == b"\x16"  # TLS' hello, and nothing after it
    for lies in ({"kind": "serial"}, {"port": 0}, {"port": 70000}, {"authority": "x"}):
        with pytest.raises((errors.BadAnswer, errors.InvalidInput)):
            guest_connection.request_relay(_Liar(cloud.fleet, **lies), "web1", "display")


@pytest.mark.usefixtures("guest")
def test_nobody_else_is_let_in_by_the_hypervisor(cloud):
    found = guest_connection.request_relay(cloud.fleet, "web1", "display")
    stranger = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT)
    for pair in (stranger, None):
        context = ssl.create_default_context(cadata=found.authority)
        if pair:
            told = tls_listener.TlsCredentials(
                found.authority, pair.certificate, pair.key, found.authority
            )
            context = tls_listener.context(told, ssl.PROTOCOL_TLS_CLIENT)
        with (
            contextlib.suppress(OSError),
            socket.create_connection((found.address, found.port), 60) as line,
            context.wrap_socket(line, server_hostname=reach.CERTIFICATE_NAME) as tls,
        ):
            assert tls.recv(10) == b""
    slow = [socket.create_connection((found.address, found.port), 60) for _ in range(2)]
    for one in slow:
        one.sendall(b"\x16")  # a handshake that never goes on
    with guest_connection.connect(found) as line:
        assert line.recv(100) == b"RFB 003.008\n"
        with pytest.raises(OSError):  # and who was let in was the only one
            socket.create_connection((found.address, found.port), 2)
    for one in slow:
        one.close()


@pytest.mark.slow
@pytest.mark.usefixtures("guest")
def test_a_hypervisor_waits_for_a_while(cloud):
    assert relay.CALLER_TIMEOUT_S > tickets.LIFE_S
    found = guest_connection.request_relay(cloud.fleet, "web1", "display")
    until(lambda: not _listens_tls(found), "nobody waits", 90)
    with pytest.raises(errors.ConnectionFailed, match="virt:reach:addresses"):
        guest_connection.connect(found)


def _listens_tls(found):
    with open("/proc/net/tcp6", encoding="ascii") as file:
        return f":{found.port:04X} " in file.read()


def test_display_says_where_and_no_password(cloud, guest):
    said = verbs.display(cloud.fleet, "web1")["web1"]
    vnc, serial = said["displays"]
    assert (vnc["type"], vnc["listen"]) == ("vnc", "127.0.0.1")
    assert vnc["port"] >= 5900 and "ssh -N -L" in vnc["tunnel"]
    assert (serial["type"], serial["port"]) == ("serial", None)
    assert said["uuid"] == guest.UUIDString()
    assert "s3cret" not in json.dumps(said)
    lines = output().output({"web1": said}).splitlines()
    assert lines[1:4] == [
        "vnc listens on 127.0.0.1 of hv1 only: leave the first command running",
        f"  {vnc['tunnel']}",
        f"  {vnc['connect']}",
    ]
    assert "  salt-run virt.console web1" in lines
    off = output().output({"web1": {**said, "state": "shutdown"}}).splitlines()
    assert off[1:] == ["it can be opened after salt-run virt.start web1"]


def output():
    """The module of the outputter."""
    spec = importlib.util.spec_from_file_location("shown", REPOSITORY / "_output/virt_query.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("guest")
def test_a_picture_is_small_and_a_png(cloud):
    found = base64.b64decode(verbs.screenshot(cloud.fleet, "web1", 200, 0)["web1"]["png"])
    assert found.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(found) < 100_000


@pytest.mark.usefixtures("guest")
def test_a_picture_is_written_to_a_new_file_of_the_master(cloud, tmp_path, monkeypatch):
    path = tmp_path / "web1.png"

    def save(dest, overwrite=False):
        return verbs.save_screenshot(cloud.fleet, "web1", 200, 0, str(dest), overwrite)["web1"]

    said = save(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (said["changes"], "png" in said) == ({"path": str(path)}, False)
    path.write_bytes(b"mine")
    with pytest.raises(errors.AlreadyExists):
        save(path)
    with pytest.raises(errors.InvalidInput, match="is not a folder"):
        save(tmp_path / "none/web1.png")
    monkeypatch.setattr(verbs, "_screenshot", lambda *_asked: ("hv1", "bWFpbA=="))
    with pytest.raises(errors.OperationFailed, match="hv1 is not a picture"):
        save(path, overwrite=True)
    assert [*tmp_path.glob("**/*.png")] == [path]
    assert not [*tmp_path.glob(".salt-virt*")]
    assert path.read_bytes() == b"mine"
    monkeypatch.undo()
    save(path, overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_wide_picture_is_thinned():
    """Each second pixel of each second row of what QEMU without PNG gives."""
    rows = [bytes(255 * (x % 2 == y % 2 == 0) for x in range(9) for _ in "rgb") for y in range(5)]
    found = screenshot.png_of_ppm(b"P6\n9 5\n255\n" + b"".join(rows), 5)
    assert (int.from_bytes(found[16:20], "big"), int.from_bytes(found[20:24], "big")) == (5, 3)
    length = int.from_bytes(found[33:37], "big")
    assert zlib.decompress(found[41 : 41 + length]) == (b"\0" + b"\xff" * 15) * 3
