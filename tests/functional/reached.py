"""A guest of a real QEMU, reached as from a master: the runner's own verbs with the real modules,
and the proxy of the engine in a thread."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
import threading

import libvirt
from tornado import websocket
from tornado.httpclient import HTTPRequest

from saltvirt.console.master import tickets, verbs
from saltvirt.operations.access import owners
from saltvirt.web import cluster_view, proxy, serve
from tests.functional.cloud import Fleet
from tests.functional.conftest import load

# SeaBIOS writes to the serial port, and reads it; the display has a password that nobody is told
GUEST = """<domain type='qemu'><name>{name}</name><memory>65536</memory>
<os><type arch='x86_64' machine='pc'>hvm</type><bios useserial='yes'/>
<bootmenu enable='yes' timeout='60000'/></os>
<devices><graphics type='vnc' port='-1' autoport='yes' listen='127.0.0.1' passwd='s3cret'/>
<video><model type='vga'/></video><serial type='pty'/><console type='pty'/></devices></domain>"""


def run_proxy(owner, rules, port):
    """Run a proxy, which is then the owner's ``proxy``, until its loop is stopped."""
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        asyncio.set_event_loop(loop)
        owner.proxy = proxy.Proxy(rules)
        owner.proxy.run("127.0.0.1", port)


class Reached:
    """uri: of a libvirt. ``opts``: of the master. ``url``: of the proxy."""

    def __init__(self, uri, folder, **rules):
        self.conn = libvirt.open(uri)
        self.fleet = Fleet(load(uri), folder)
        self.fleet.seen = lambda hosts: hosts
        self.opts, self.disarmed = self.fleet.opts, False
        self.opts["virt"] = {"reach": {"addresses": {"hv1": "127.0.0.1"}}}
        self.rules = proxy.ProxyRules(
            lambda secret: tickets.redeem(self.opts, secret),
            lambda ticket: serve.denial_reason(self.opts, ticket),
            cluster_view.ClusterView(
                self.opts, lambda: self.disarmed, lambda _opts: contextlib.nullcontext(self.fleet)
            ), **rules,
        )  # fmt: skip
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}{proxy.PATH}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with contextlib.closing(self.rules.view):
            run_proxy(self, self.rules, self.port)

    def guest(self, name="web1"):
        """A running one."""
        return self.conn.createXML(GUEST.format(name=name))

    def ticket(self, name="web1", kind="display", user=None, **options):
        """The secret of a new one."""
        secret = secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        self.said = verbs.ticket(self.fleet, user, name, kind, digest, **options)
        return secret

    def owned(self, dom, user):
        """The guest is this user's, and only who owns one may reach it."""
        self.opts["virt"]["rights"] = {"grants": [{"who": "*", "verbs": ["use"], "owned": True}]}
        owners.set_owner(self.opts, dom.UUIDString(), dom.name(), user)

    def close(self):
        for dom in self.conn.listAllDomains():
            with contextlib.suppress(libvirt.libvirtError):
                dom.destroy()
        self.conn.close()
        self.proxy.loop.add_callback(self.proxy.loop.stop)
        self._thread.join()


class Browser:
    """Its end of a WebSocket. origin: whose page it is; None: it does not say."""

    def __init__(self, url, origin="same"):
        self.loop, self.is_over = asyncio.new_event_loop(), False
        if origin == "same":
            origin = url.replace("ws://", "http://").rpartition("/")[0]
        headers = {"Origin": origin} if origin else {}
        request = HTTPRequest(url, headers=headers)
        self.line = self._run(lambda: websocket.websocket_connect(request))

    def _run(self, begin, timeout=30):
        async def within():
            return await asyncio.wait_for(begin(), timeout)

        asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(within())

    def say(self, words):
        self._run(lambda: self.line.write_message(words, binary=isinstance(words, bytes)))

    def receive(self, timeout=30):
        """The next message; None at the end."""
        found = self._run(self.line.read_message, timeout)
        self.is_over = found is None
        return found

    def begin(self, secret):
        """What is answered to a ticket."""
        self.say(secret)
        return json.loads(self.receive())

    def until(self, words, timeout=60):
        """All that is heard until it has these words in it."""
        found = b""
        while words not in found:
            more = self.receive(timeout)
            assert more is not None, found
            found += more
        return found

    @property
    def end(self):
        """(Code, reason) of the end."""
        while not self.is_over:
            self.receive()
        return self.line.close_code, self.line.close_reason

    def close(self):
        if self.loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self.line.close()
            while not self.is_over:
                self.receive(5)
        self._run(self._end)
        self.loop.close()

    async def _end(self):
        """Close the socket of a connection that was not read to its end."""
        if self.line.protocol and self.line.protocol.stream:
            self.line.protocol.stream.close()
