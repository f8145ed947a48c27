"""A small HTTP server for ``/metrics``."""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from saltvirt import errors
from saltvirt.metrics.exporter import text
from saltvirt.metrics.model.family import Family
from saltvirt.system import tls_listener
from saltvirt.system.tls_listener import CertificateFiles

log = logging.getLogger(__name__)

PATH = "/metrics"
# maximum of simultaneous requests, timeout of an idle client, timeout of a request
_MAX_CONNECTIONS, _IDLE_TIMEOUT_S, _MAX_DURATION_S = 8, 10, 60


class Exporter(ThreadingHTTPServer):
    """Serves the result of ``read``. tls: the files are loaded again when they are replaced.

    Raises OperationFailed with one line for an unusable address, certificate or key.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: str,
        port: int,
        read: Callable[[], Iterable[Family]],
        tls: CertificateFiles | None = None,
    ) -> None:
        self.read, self.tls = read, tls
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._context: tuple[object, ssl.SSLContext] | None = None
        if tls:
            self._tls_context(tls)
        try:
            super().__init__((address, port), _Handler)
        except (OSError, OverflowError) as exc:
            raise errors.OperationFailed(
                f"metrics: cannot listen on {address} port {port}: {exc}"
            ) from exc

    def _tls_context(self, tls: CertificateFiles) -> ssl.SSLContext:
        try:
            stamp = [os.stat(path).st_mtime_ns for path in tls]
            if self._context is None or self._context[0] != stamp:
                self._context = stamp, tls_listener.new_context(ssl.PROTOCOL_TLS_SERVER, tls)
        except OSError as exc:
            raise errors.OperationFailed(f"metrics: TLS by {' and '.join(tls)}: {exc}") from exc
        return self._context[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in a thread, if the limit allows one more."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Perform the TLS handshake in the request's thread, so that a slow client blocks no
        others."""
        try:
            request.settimeout(_IDLE_TIMEOUT_S)
            if self.tls:
                context = self._tls_context(self.tls)
                request = context.wrap_socket(request, server_side=True)
            with _bounded(request):
                super().process_request_thread(request, client_address)
        except (OSError, RuntimeError, errors.VirtError) as exc:
            log.debug("metrics: %s: %s", client_address, exc)
            self.shutdown_request(request)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""
        level = logging.DEBUG if isinstance(sys.exc_info()[1], OSError) else logging.ERROR
        log.log(level, "metrics: %s", client_address, exc_info=True)


@contextlib.contextmanager
def _bounded(request: socket.socket) -> Iterator[None]:
    """Close a connection that stays open for too long, however slowly the client proceeds. Raises
    RuntimeError if the system cannot start a thread."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(request, socket.SHUT_RDWR)

    timer = threading.Timer(_MAX_DURATION_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    timeout = _IDLE_TIMEOUT_S
    server: Exporter

    def version_string(self) -> str:
        return "Salt Virt"

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}")
            return
        kind, pieces = text.render(self.server.read(), self.headers.get("Accept", ""))
        use_gzip = "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if use_gzip:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        try:
            self._send(pieces, use_gzip)
        except Exception:
            self._break_off()
            raise

    def _break_off(self) -> None:
        """Reset the connection. The older text format has no end mark: Prometheus would accept a
        partial response from a connection that is closed normally."""
        with contextlib.suppress(OSError):
            at_once = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.connection.close()

    def _send(self, pieces: Iterator[bytes], use_gzip: bool) -> None:
        if not use_gzip:
            for piece in pieces:
                self.wfile.write(piece)
            return
        with gzip.GzipFile(fileobj=self.wfile, mode="wb", compresslevel=1) as file:
            for piece in pieces:
                file.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("metrics: %s %s", self.client_address, format % args)
