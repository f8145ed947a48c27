"""The WebSocket server for browsers with a ticket, behind the TLS of salt-api.

The browser's first message is the secret of its ticket. The answer is one line of JSON, with
``error`` if the ticket is invalid or the guest is unreachable. After that, data is forwarded in
both directions or, for the ticket of a page, the state of the cloud is sent: see page_session.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import saltvirt
from saltvirt import errors, sanitize
from saltvirt.answers import reach
from saltvirt.console.master import guest_connection
from saltvirt.console.master.tickets import Ticket
from saltvirt.web import page_session

try:
    from tornado import gen, httpserver, ioloop, iostream, tcpclient, web, websocket
except ImportError:  # Salt 3006 bundles its own copy
    from salt.ext.tornado import (  # type: ignore[no-redef]
        gen,
        httpserver,
        ioloop,
        iostream,
        tcpclient,
        web,
        websocket,
    )

if TYPE_CHECKING:
    from saltvirt.console.master.guest_connection import GuestConnection
    from saltvirt.web.cluster_view import ClusterView

# the error of gen.with_timeout
_TimedOut: type[Exception] = gen.TimeoutError  # type: ignore[attr-defined,unused-ignore]

log = logging.getLogger(__name__)

PATH = "/reach"
# maximum connections: in total, without a ticket, per user to guests, per user of pages
MAX_CONNECTIONS, MAX_PENDING, MAX_PER_USER, MAX_PAGES_PER_USER = 400, 64, 20, 100
# timeout of the first message, and of functions that run in a thread
_HELLO_TIMEOUT_S = 10
# interval of checks of a user's permission, and of the library on the disk
RECHECK_S, UPDATE_S = 10, 30
_MESSAGE_BYTES = 1024**2
_FIRST_BYTES = 256
_CHUNK_BYTES = 64 * 1024
# an unreachable browser is detected after twice this time
_PING_S = 30
# WebSocket close codes: a normal end; an invalid ticket or an unreachable guest
_NORMAL_CLOSURE, _REFUSED = 1000, 4001
_MAX_REASON_BYTES = 120
_UPDATED = (
    "Salt Virt was updated: consoles stay open, and the engine restarts when the last one is closed"
)


@dataclass(frozen=True)
class ProxyRules:
    """How the proxy decides.

    redeem: returns the Ticket of a secret; raises Denied. denial_reason: why a ticket's user has
    lost the permission, or None. view: the cloud as pages see it. origins: of pages that may
    connect; empty: those of the requested address. is_updated: whether the library on the disk is
    newer than the one in this process, which must not query hypervisors any more.
    """

    redeem: Callable[[str], Ticket]
    denial_reason: Callable[[Ticket], str | None]
    view: ClusterView
    origins: tuple[str, ...] = ()
    is_updated: Callable[[], bool] = saltvirt.stale


class Proxy:
    """The server and its connections."""

    def __init__(self, rules: ProxyRules) -> None:
        self.rules = rules
        self.strangers = 0
        self.users: Counter[tuple[str | None, bool]] = Counter()
        self.pages: set[_BrowserSession] = set()
        self.is_updated = False
        self.pool = ThreadPoolExecutor(4, "salt-virt-reach")
        application = web.Application(
            [(PATH, _BrowserSession, {"proxy": self})], websocket_ping_interval=_PING_S,
            websocket_ping_timeout=_PING_S, websocket_max_message_size=_MESSAGE_BYTES,
            log_function=lambda _handler: None,
        )  # fmt: skip
        self.server = _Server(
            application, idle_connection_timeout=_HELLO_TIMEOUT_S, body_timeout=_HELLO_TIMEOUT_S,
            max_header_size=16 * 1024, max_body_size=1024,
        )  # fmt: skip
        self.server.lines = lambda: self.strangers + self.users.total()

    def run(self, address: str, port: int) -> None:
        """Serve until the process ends, or until the library was updated and no console is open.
        Raises OperationFailed if the address cannot be used."""
        self.loop = ioloop.IOLoop()
        failed: list[OSError] = []

        def begin() -> None:
            try:
                self.server.listen(port, address)
            except OSError as exc:
                failed.append(exc)
                self.loop.stop()

        self.loop.add_callback(begin)
        self.loop.spawn_callback(self._updated)
        try:
            self.loop.start()
        finally:
            self.server.stop()
            self.pool.shutdown(wait=False)
            self.loop.close(all_fds=True)
        if failed:
            raise errors.OperationFailed(f"cannot listen on {address} port {port}: {failed[0]}")

    async def _updated(self) -> None:
        """Stop the event loop after an update of the library, so that Salt restarts the engine.
        Pages are disconnected before and query by themselves meanwhile."""
        while not self.is_updated or any(not is_page for _, is_page in self.users):
            await gen.sleep(UPDATE_S)
            try:
                self.is_updated = await self.run_in_thread(lambda _: self.rules.is_updated(), None)
            except Exception:
                log.exception("reach: cannot determine whether the library was updated")
            for page in [*self.pages] if self.is_updated else ():
                page.end(_UPDATED)
        log.info("reach: %s", _UPDATED)
        self.loop.stop()

    def run_in_thread(self, function: Callable[[Any], Any], argument: Any) -> Awaitable[Any]:
        """Run a function that reads files or queries others in a thread, and wait for its result
        without blocking."""
        future = self.pool.submit(function, argument)
        bounded: Awaitable[Any] = gen.with_timeout(
            datetime.timedelta(seconds=_HELLO_TIMEOUT_S), future
        )
        return bounded


class _Server(httpserver.HTTPServer):  # type: ignore[misc,name-defined,unused-ignore]
    """Limits the number of connections. lines: the number of WebSockets, which the server itself no
    longer counts."""

    lines: Callable[[], int]

    def handle_stream(self, stream: Any, address: Any) -> None:
        if len(self._connections) + self.lines() >= MAX_CONNECTIONS:
            stream.close()
        else:
            super().handle_stream(stream, address)


def same_origin(origin: str, host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a page of that origin may connect. host: the Host header. Headers that a proxy adds
    are ignored, because anyone can send them."""
    if allowed:
        return origin.lower() in {allowed_origin.lower().rstrip("/") for allowed_origin in allowed}
    parsed = urlsplit(origin)
    return (
        parsed.scheme in ("https", "http") and bool(host) and parsed.netloc.lower() == host.lower()
    )


class _BrowserSession(websocket.WebSocketHandler):  # type: ignore[misc,name-defined,unused-ignore]
    """The connection of one browser to one guest or to the view of the cloud."""

    def initialize(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._ticket: Ticket | None = None
        self._inner: Any = None
        self._page: page_session.PageSession | None = None
        self._is_stranger = self._is_done = False
        self._timer: Any = None

    def prepare(self) -> None:
        """Refuse requests without an origin, which browsers always send."""
        if "Origin" not in self.request.headers or self._proxy.strangers >= MAX_PENDING:
            self.set_status(403 if "Origin" not in self.request.headers else 503)
            self.finish()

    def check_origin(self, origin: str) -> bool:
        host = self.request.headers.get("Host", "")
        return same_origin(origin, host, self._proxy.rules.origins)

    def open(self, *_args: str, **_kwargs: str) -> None:
        self._proxy.strangers += 1
        self._is_stranger = True
        self.set_nodelay(True)
        self._timer = ioloop.IOLoop.current().call_later(
            _HELLO_TIMEOUT_S, self._end, "no ticket was sent"
        )

    async def on_message(self, message: str | bytes) -> None:
        if self._inner is not None and isinstance(message, bytes):
            try:
                await self._inner.write(message)
            except iostream.StreamClosedError:
                self._end("the guest has closed the connection")
        elif self._page is not None and message == page_session.REFRESH_COMMAND:
            self._page.request_refresh()
        elif self._ticket is None and self._is_stranger:
            await self._begin(message)
        else:
            self._end("unexpected message")

    async def _begin(self, message: str | bytes) -> None:
        """Handle the first message. Any further message before the answer is an error."""
        self._authenticated()
        try:
            if not isinstance(message, str) or len(message) > _FIRST_BYTES:
                raise errors.Denied("not a ticket")
            ticket: Ticket = await self._proxy.run_in_thread(self._proxy.rules.redeem, message)
            await self._admit(ticket)
            inner = await _connect_guest(ticket.connection) if ticket.connection else None
        except (errors.VirtError, _TimedOut) as exc:
            timeout = "the master did not respond in time"
            reason = exc.text if isinstance(exc, errors.VirtError) else timeout
            log.info("reach: refused: %s", reason)
            in_use = {"in_use": True} if isinstance(exc, reach.InUse) else {}
            self._send({"error": sanitize.one_line(reason, None), **in_use})
            self._end(reason, _REFUSED)
            return
        self._inner = inner  # first: where the browser has gone meanwhile it is closed
        loop = ioloop.IOLoop.current()
        loop.spawn_callback(self._watch)
        if ticket.connection is None:
            self._proxy.pages.add(self)
            self._send({"page": True})
            self._page = page_session.PageSession(
                self._proxy.rules.view, ticket.user, self.write_message, loop
            )
            loop.spawn_callback(self._show, self._page)
            return
        connection = ticket.connection
        self._send({"guest": connection.guest, "kind": connection.kind, "type": connection.type})
        loop.spawn_callback(self._down)
        log.info("reach: %s has the %s of %s", ticket.user, connection.kind, connection.guest)

    def _authenticated(self) -> None:
        """Count the connection as authenticated and cancel its timeout."""
        if self._is_stranger:
            self._proxy.strangers -= 1
            self._is_stranger = False
        if self._timer is not None:
            ioloop.IOLoop.current().remove_timeout(self._timer)
            self._timer = None

    async def _admit(self, ticket: Ticket) -> None:
        """Raise Denied if the ticket's user lacks the permission or has too many connections."""
        if ticket.is_page and self._proxy.is_updated:
            raise errors.Denied(_UPDATED)
        limit, noun = (MAX_PAGES_PER_USER, "pages") if ticket.is_page else (MAX_PER_USER, "guests")
        if self._proxy.users[ticket.user, ticket.is_page] >= limit:
            raise errors.Denied(f"you have {limit} open {noun}: close one")
        self._ticket = ticket
        self._proxy.users[ticket.user, ticket.is_page] += 1
        reason = await self._proxy.run_in_thread(self._proxy.rules.denial_reason, ticket)
        if reason:
            raise errors.Denied(reason)

    async def _down(self) -> None:
        """Forward the guest's output until it ends."""
        try:
            while True:
                data = await self._inner.read_bytes(_CHUNK_BYTES, partial=True)
                await self.write_message(data, binary=True)
        except (iostream.StreamClosedError, websocket.WebSocketClosedError):
            self._end("the guest has closed the connection")

    async def _show(self, page: page_session.PageSession) -> None:
        """Send the state of the cloud until the browser disconnects."""
        try:
            await page.run(self._proxy.run_in_thread)
        except (iostream.StreamClosedError, websocket.WebSocketClosedError):
            self._end("")
        except Exception:
            log.exception("reach: the page of %s", self._ticket and self._ticket.user)
            self._end("the connection ended because of an error, which is in the master's log")

    async def _watch(self) -> None:
        """End the connection when the user loses the permission, or when the permission cannot be
        determined."""
        reason = None
        while not reason and not self._is_done:
            await gen.sleep(RECHECK_S)
            try:
                check = self._proxy.rules.denial_reason
                reason = await self._proxy.run_in_thread(check, self._ticket)
            except Exception:
                log.exception("reach: %s", self._ticket and self._ticket.user)
                reason = "your permission cannot be determined"
        if reason:
            self._end(reason, _REFUSED)

    def _send(self, data: dict[str, Any]) -> None:
        try:
            self.write_message(json.dumps(data))
        except websocket.WebSocketClosedError:
            self._end("")

    def end(self, message: str) -> None:
        """Close the connection normally."""
        self._end(message)

    def _end(self, message: str, code: int = _NORMAL_CLOSURE) -> None:
        """Close both sides."""
        reason = sanitize.one_line(message, None).encode()[:_MAX_REASON_BYTES]
        self.close(code, reason.decode(errors="ignore"))
        self._forget()

    def on_close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._authenticated()
        if self._is_done:
            return
        self._is_done = True
        if self._inner is not None:
            self._inner.close()
        if self._page is not None:
            self._page.close()
        self._proxy.pages.discard(self)
        if self._ticket is not None:
            self._proxy.users[self._ticket.user, self._ticket.is_page] -= 1
            self._proxy.users += Counter()  # without those who have none


async def _connect_guest(connection: GuestConnection) -> Any:
    """Connect to the guest's hypervisor. Raises ConnectionFailed, OperationFailed."""
    limit = datetime.timedelta(seconds=guest_connection.CONNECT_TIMEOUT_S)
    quiet_errors = (OSError, iostream.StreamClosedError)
    raw_socket: socket.socket | None = None
    with contextlib.ExitStack() as stack:
        try:
            context = guest_connection.context(connection)
            plain_line = await gen.with_timeout(
                limit,
                tcpclient.TCPClient().connect(connection.address, connection.port),
                quiet_exceptions=quiet_errors,
            )
            plain_line.set_nodelay(True)
            # closes the connection during the TLS handshake, when the stream no longer has its
            # socket
            raw_socket = stack.enter_context(plain_line.socket.dup())
            started = plain_line.start_tls(False, context, server_hostname=reach.CERTIFICATE_NAME)
            inner = await gen.with_timeout(limit, started, quiet_exceptions=quiet_errors)
            read = inner.read_until(b"\n", max_bytes=4096)
            first_line = await gen.with_timeout(limit, read, quiet_exceptions=quiet_errors)
        except (OSError, _TimedOut, iostream.StreamClosedError,
                iostream.UnsatisfiableReadError) as exc:  # fmt: skip
            if raw_socket is not None:
                with contextlib.suppress(OSError):
                    raw_socket.shutdown(socket.SHUT_RDWR)
            raise guest_connection.unreachable(connection, exc) from exc
    error = guest_connection.refusal(connection, first_line)
    if error is not None:
        inner.close()
        raise error
    return inner
