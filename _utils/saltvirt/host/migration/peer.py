"""The connection to the other host's libvirt: one that notices when the network is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.migration.transport import Transport
from saltvirt.settings import Connection

# a peer that is silent for KEEPALIVE_S * KEEPALIVE_TIMES is taken for gone
KEEPALIVE_S = 5
KEEPALIVE_TIMES = 4


@contextlib.contextmanager
def connect(
    transport: Transport, username: str | None = None, password: str | None = None
) -> Iterator[libvirt.virConnect]:
    """A connection to the target's libvirt for the block.

    username, password: for SASL or ssh.
    Raises ConnectionFailed with libvirt's words: which certificate, which name, which port.
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
    """The URI as we use it: ssh must ask nobody for a password."""
    if transport.scheme != "ssh" or "?" in transport.uri:
        return transport.uri
    return f"{transport.uri}?no_tty=1"
