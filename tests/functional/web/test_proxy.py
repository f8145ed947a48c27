"""The proxy of pages and guests: connection limits, and failures."""

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("tornado")
pytest.importorskip("cryptography")

from tornado import ioloop

from saltvirt.answers import reach
from saltvirt.console.master import guest_connection, tickets
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.web import cluster_view, proxy
from tests.clock import until
from tests.functional.reached import Browser, run_proxy

SECRET = "s" * 43
PAGE = tickets.Ticket("anna", 0.0, is_page=True)


class View:
    """What pages see: a look that takes as long as a test wants."""

    def __init__(self):
        self.last, self.fails, self.goes = (
            cluster_view.ViewSnapshot(1, 0.0),
            None,
            threading.Event(),
        )
        self.asked = threading.Event()
        self.goes.set()

    @contextlib.contextmanager
    def subscribed(self, _page):
        if self.fails:
            raise self.fails
        yield

    def for_user(self, _user):
        self.asked.set()
        self.goes.wait(120)
        return cluster_view.UserView(self.last, {})


@pytest.fixture
def proxied(monkeypatch):
    """A proxy whose ``rules`` a test may change; ``browser()`` is one more."""
    monkeypatch.setattr(proxy, "UPDATE_S", 0.05)
    found = SimpleNamespace(
        view=View(), ticket=PAGE, stands=lambda _ticket: None, is_updated=False, is_over=False
    )

    def stands(ticket):
        return found.stands(ticket)

    rules = proxy.ProxyRules(
        lambda _secret: found.ticket, stands, found.view, is_updated=lambda: found.is_updated
    )
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        found.port = one.getsockname()[1]

    def run():
        run_proxy(found, rules, found.port)
        found.is_over = True

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", found.port), 1):
            return True

    until(listens, "the proxy listens")
    with contextlib.ExitStack() as stack:

        def browser():
            one = Browser(f"ws://127.0.0.1:{found.port}{proxy.PATH}")
            stack.callback(one.close)
            return one

        found.browser = browser
        yield found
        found.view.goes.set()
    if not found.is_over:
        found.proxy.loop.add_callback(found.proxy.loop.stop)
    thread.join()


def test_a_user_has_so_many_pages_and_no_more(proxied, monkeypatch):
    monkeypatch.setattr(proxy, "MAX_PAGES_PER_USER", 1)
    one, two = proxied.browser(), proxied.browser()
    assert one.begin(SECRET) == {"page": True}
    assert two.begin(SECRET) == {"error": "you have 1 open pages: close one"}
    assert two.end[0] == 4001
    one.close()
    until(lambda: not proxied.proxy.users, "nobody is counted")
    assert proxied.browser().begin(SECRET) == {"page": True}


@pytest.mark.parametrize("why", [None, "you may not"])
def test_a_browser_that_goes_before_it_is_answered_is_counted_no_more(proxied, monkeypatch, why):
    """As where a write of the server's finds it gone: nothing is read of one that waits."""
    asked, goes, lines, opened = (
        threading.Event(),
        threading.Event(),
        [],
        proxy._BrowserSession.open,
    )

    def known(line):
        lines.append((line.ws_connection.stream, ioloop.IOLoop.current()))
        opened(line)

    def stands(_ticket):
        asked.set()
        goes.wait(120)
        return why

    monkeypatch.setattr(proxy._BrowserSession, "open", known)
    proxied.stands = stands
    proxied.browser().say(SECRET)
    assert asked.wait(60) and proxied.proxy.users
    [(stream, loop)] = lines
    loop.add_callback(stream.close)
    goes.set()
    until(lambda: not proxied.proxy.users, "it is counted no more")
    proxied.stands = lambda _ticket: None
    assert proxied.browser().begin(SECRET) == {"page": True}


def test_a_guest_whose_hypervisor_is_not_reached(proxied):
    pair = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    proxied.ticket = tickets.Ticket("anna", 0.0, guest_connection.GuestConnection(
        "web1", "u", "hv1", "display", "vnc", "127.0.0.1", port, pair.authority,
        pair.certificate, pair.key,
    ))  # fmt: skip
    said = proxied.browser().begin(SECRET)["error"]
    assert said.startswith(f"cannot connect to hv1 at 127.0.0.1 port {port}: ")
    until(lambda: not proxied.proxy.users, "nobody is counted")


def test_a_hypervisor_that_is_none_gets_no_word_of_the_guest(proxied, monkeypatch):
    monkeypatch.setattr(proxy.guest_connection, "CONNECT_TIMEOUT_S", 3)
    pair = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        proxied.ticket = tickets.Ticket("anna", 0.0, guest_connection.GuestConnection(
            "web1", "u", "hv1", "display", "vnc", *deaf.getsockname(), pair.authority,
            pair.certificate, pair.key,
        ))  # fmt: skip
        assert "cannot connect to hv1 at" in proxied.browser().begin(SECRET)["error"]
        line, _ = deaf.accept()
        with line:
            line.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b"\x16", "TLS' hello"
                while line.recv(4096):
                    pass


def test_a_page_that_fails_ends_and_the_log_says_why(proxied, caplog):
    proxied.view.fails = ValueError("broken")
    one = proxied.browser()
    assert one.begin(SECRET) == {"page": True}
    assert one.end == (
        1000,
        "the connection ended because of an error, which is in the master's log",
    )
    assert "ValueError: broken" in caplog.text


def test_who_goes_while_the_cloud_is_looked_at_leaves_nothing(proxied, caplog):
    proxied.view.goes.clear()
    one = proxied.browser()
    assert one.begin(SECRET) == {"page": True}
    assert proxied.view.asked.wait(60)
    one.line.protocol.stream.close()
    until(lambda: not proxied.proxy.users, "nobody is counted")
    proxied.view.goes.set()
    two = proxied.browser()
    assert two.begin(SECRET) == {"page": True}
    two.receive()
    assert "Traceback" not in caplog.text


def test_who_may_is_not_known_is_no_leave_to_go_on(proxied, monkeypatch, caplog):
    monkeypatch.setattr(proxy, "RECHECK_S", 0.05)
    one = proxied.browser()
    assert one.begin(SECRET) == {"page": True}

    def broken(_ticket):
        raise ValueError("broken")

    proxied.stands = broken
    assert one.end == (4001, "your permission cannot be determined")
    assert "ValueError: broken" in caplog.text


def test_connections_have_an_end(proxied, monkeypatch):
    one = proxied.browser()
    until(lambda: proxied.proxy.strangers, "it is there")
    monkeypatch.setattr(proxy, "MAX_CONNECTIONS", 1)
    with socket.create_connection(("127.0.0.1", proxied.port), 60) as too_many:
        assert too_many.recv(1) == b""
    assert one.begin(SECRET) == {"page": True}
    with socket.create_connection(("127.0.0.1", proxied.port), 60) as too_many:
        assert too_many.recv(1) == b""
    one.close()
    until(lambda: not proxied.proxy.users, "it is gone")
    assert proxied.browser().begin(SECRET) == {"page": True}


def test_after_an_update_it_ends_and_salt_begins_it_anew(proxied):
    """Its process would ask the hypervisors by the old library, which refuses that."""
    page = proxied.browser()
    assert page.begin(SECRET) == {"page": True}
    proxied.is_updated = True
    assert page.end[1].startswith("Salt Virt was updated")
    until(lambda: proxied.is_over, "the engine has ended")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", proxied.port), 60)


def test_after_an_update_nobody_loses_the_console_of_a_guest(proxied):
    proxied.proxy.users["bob", False] += 1
    page = proxied.browser()
    assert page.begin(SECRET) == {"page": True}
    proxied.is_updated = True
    assert page.end[1].startswith("Salt Virt was updated")
    assert "was updated" in proxied.browser().begin(SECRET)["error"]
    assert not proxied.is_over
    proxied.proxy.users.clear()
    until(lambda: proxied.is_over, "the engine has ended")
