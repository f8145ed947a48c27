"""The connection to the target's libvirt, which notices a network failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.migration.transport import Transport
from saltvirt.settings import Connection

# a peer that is silent for KEEPALIVE_S * KEEPALIVE_TIMES seconds is taken for dead
KEEPALIVE_S = 5
KEEPALIVE_TIMES = 4


@contextlib.contextmanager
def connect(
    transport: Transport, username: str | None = None, password: str | None = None
) -> Iterator[libvirt.virConnect]:
    """Connect to the target's libvirt for the block.

    username, password: for SASL or ssh. Raises ConnectionFailed with libvirt's message, which names
    the certificate, name or port.
    """
    connection.keep_events_running()
    uri = Connection(batch(transport), username, password)
    with connection.connect(uri) as peer:
        try:
            peer.setKeepAlive(KEEPALIVE_S, KEEPALIVE_TIMES)
        except libvirt.libvirtError as exc:
            raise errors.ConnectionFailed(f"{transport.uri}: {exc.get_error_message()}") from exc
        yield peer


def batch(transport: Transport) -> str:
    """Return the URI with ssh in batch mode: ssh must not ask for a password."""
    if transport.scheme != "ssh" or "?" in transport.uri:
        return transport.uri
    return f"{transport.uri}?no_tty=1"
