"""A connection that receives libvirt events and reconnects after a failure."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from saltvirt.host.connection import libvirt, require_binding, translate
from saltvirt.host.node import events

log = logging.getLogger(__name__)

# keepalive: the connection is closed after this many unanswered probes
_KEEPALIVE_S, _KEEPALIVE_PROBES = 5, 3
_WAKE_MS = 500
_RETRY_S = 5


class LibvirtListener:
    """Reports the events of one libvirt daemon until it is stopped.

    uri: libvirt URI, or None for the default. pairs: from :func:`events.parse_filters`. send:
    called with the connection's URI, object, event and data. connected: called with True when the
    listener has connected, with False when it has lost libvirt or cannot connect; once for each
    change.
    """

    def __init__(
        self,
        uri: str | None,
        pairs: list[tuple[str, str]],
        send: Callable[[str, str, str, dict[str, Any]], object],
        connected: Callable[[bool], object] = lambda _is_connected: None,
    ):
        require_binding()
        self.uri, self.pairs, self.send, self._connected = uri, pairs, send, connected
        self._is_connected: bool | None = None
        self.stopped = False
        self._lost: int | None = None
        self._last_warning: str | None = None

    def run(self) -> None:
        """Receive events and reconnect after each failure. Returns after :meth:`stop`."""
        libvirt.virEventRegisterDefaultImpl()
        timer = libvirt.virEventAddTimeout(_WAKE_MS, lambda _timer, _opaque: None, None)
        try:
            while not self.stopped:
                self._session()
                if not self.stopped:
                    time.sleep(_RETRY_S)
        finally:
            libvirt.virEventRemoveTimeout(timer)

    def stop(self) -> None:
        """End run() within half a second."""
        self.stopped = True

    def _session(self) -> None:
        try:
            conn = libvirt.openReadOnly(self.uri)
        except libvirt.libvirtError as exc:
            self._warn_once(f"cannot connect to {self.uri or 'libvirt'}: {translate(exc)}")
            self._announce(False)
            return
        self._last_warning = self._lost = None
        uri = conn.getURI()
        log.info("listening to events of %s", uri)
        try:
            self._listen(conn, uri)
        except libvirt.libvirtError as exc:
            self._warn_once(f"lost {uri}: {translate(exc)}")
        finally:
            with contextlib.suppress(libvirt.libvirtError):
                conn.close()

    def _listen(self, conn: libvirt.virConnect, uri: str) -> None:
        # drivers without a daemon do not support it
        with contextlib.suppress(libvirt.libvirtError):
            conn.registerCloseCallback(self._closed, None)
            conn.setKeepAlive(_KEEPALIVE_S, _KEEPALIVE_PROBES)
        undos = events.register(conn, self.pairs, lambda *event: self.send(uri, *event))
        self._announce(True)
        while not self.stopped and self._lost is None:
            libvirt.virEventRunDefaultImpl()
        if self._lost is not None:
            self._announce(False)
            self._warn_once(f"lost the connection to {uri}: reconnecting")
        for undo in undos:  # also on a lost connection, which libvirt keeps while it has callbacks
            with contextlib.suppress(libvirt.libvirtError):
                undo()

    def _closed(self, _conn: libvirt.virConnect, reason: int, _opaque: Any) -> None:
        self._lost = reason

    def _announce(self, is_connected: bool) -> None:
        if is_connected is not self._is_connected:
            self._connected(is_connected)
        self._is_connected = is_connected

    def _warn_once(self, text: str) -> None:
        """Log a warning once, not on each retry."""
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text
