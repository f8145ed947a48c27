"""A connection that listens to libvirt's events, and comes back when libvirt was gone."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from saltvirt.host.connection import libvirt, require_binding, translate
from saltvirt.host.node import events

log = logging.getLogger(__name__)

# a daemon that answers to none of so many probes is gone
_KEEPALIVE_S, _KEEPALIVE_PROBES = 5, 3
_WAKE_MS = 500
_RETRY_S = 5


class LibvirtListener:
    """Reports the events of one libvirt until it is told to stop.

    uri: libvirt URI, None for its default. pairs: of :func:`events.chosen`.
    send: called with the connection's URI, object, event and data.
    """

    def __init__(
        self,
        uri: str | None,
        pairs: list[tuple[str, str]],
        send: Callable[[str, str, str, dict[str, Any]], object],
    ):
        require_binding()
        self.uri, self.pairs, self.send = uri, pairs, send
        self.stopped = False
        self._lost: int | None = None
        self._last_warning: str | None = None

    def run(self) -> None:
        """Listens, and connects again after each loss. Returns after :meth:`stop`."""
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
        """Ends run() within half a second."""
        self.stopped = True

    def _session(self) -> None:
        try:
            conn = libvirt.openReadOnly(self.uri)
        except libvirt.libvirtError as exc:
            self._warn_once(f"cannot connect to {self.uri or 'libvirt'}: {translate(exc)}")
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
        with contextlib.suppress(libvirt.libvirtError):  # a driver without a daemon
            conn.registerCloseCallback(self._closed, None)
            conn.setKeepAlive(_KEEPALIVE_S, _KEEPALIVE_PROBES)
        undos = events.register(conn, self.pairs, lambda *event: self.send(uri, *event))
        while not self.stopped and self._lost is None:
            libvirt.virEventRunDefaultImpl()
        if self._lost is not None:
            self._warn_once(f"lost {uri}: connecting again")
        for undo in undos:  # of a lost one, too: libvirt keeps it as long as it has a callback
            with contextlib.suppress(libvirt.libvirtError):
                undo()

    def _closed(self, _conn: libvirt.virConnect, reason: int, _opaque: Any) -> None:
        self._lost = reason

    def _warn_once(self, text: str) -> None:
        """Logs a trouble once, not at each try."""
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text
