"""The connection from the master to one guest's display, serial port or agent: its hypervisor waits
for one client, and both sides authenticate each other with one-time certificates.

The hypervisor's address comes from the master's configuration. The master never connects to an
address that a hypervisor reports.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field

from saltvirt import errors, settings
from saltvirt.answers import reach
from saltvirt.console import calls
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.placement import facts
from saltvirt.schema import Message
from saltvirt.system import tls_listener

CONNECT_TIMEOUT_S = 10
_DAYS = 1
# limit of the hypervisor's first line
_MAX_LINE_BYTES = 4096


@dataclass(frozen=True)
class GuestConnection(Message):
    """What is needed to connect.

    uuid: of the guest. host: a minion id; address, port: where its relay program waits. authority:
    of the relay program's certificate. certificate, key: of the client. All are PEM. type: of the
    display or of the serial port's device.
    """

    guest: str
    uuid: str
    host: str
    kind: str
    type: str
    address: str
    port: int
    authority: str
    certificate: str
    key: str = field(repr=False)


def request_relay(
    fleet: Fleet, name: str, kind: str, screen: int = 0, force: bool = False
) -> GuestConnection:
    """Make the guest's hypervisor wait 40 s for a client; see ReachRequest. Raises NotFound,
    Refused, and the errors of Fleet.call."""
    host = host_of(fleet, name)
    pair = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT, _DAYS)
    request = calls.ReachRequest(name, kind, pair.authority, screen, force)
    response = calls.START_RELAY.ask(fleet, host, request)
    if response.kind != kind or not 0 < response.port < 65536:
        raise errors.BadAnswer(f"{host} returned the answer of another request")
    authority = own_pair.authority(response.authority, f"{host}: authority")
    address = address_of(settings.of_master(fleet.opts), host)
    return GuestConnection(
        name, response.uuid, host, kind, response.type, address, response.port, authority,
        pair.certificate, pair.key,
    )  # fmt: skip


def address_of(get: settings.Get, host: str) -> str:
    """A hypervisor's address from the master's configuration. Raises InvalidInput."""
    for minion_id, address in settings.mapping(get, "reach:addresses").items():
        if not isinstance(address, str) or not address:
            raise settings.invalid(f"reach:addresses:{minion_id}", address, "a name or an address")
        if minion_id == host:
            return address
    return host


def host_of(fleet: Fleet, name: str) -> str:
    """The host on which the guest runs. Raises NotFound, and OperationFailed if the guest is
    off."""
    host, state = find.last_seen(fleet, name) or find.locate(fleet, name)
    if state not in facts.ACTIVE:
        raise errors.OperationFailed(f"{name} is off: run salt-run virt.start {name}")
    return host


def context(connection: GuestConnection) -> ssl.SSLContext:
    """A TLS context with the client's certificate that trusts only that hypervisor's relay
    program."""
    credentials = tls_listener.TlsCredentials(
        connection.authority, connection.certificate, connection.key, connection.authority
    )
    return tls_listener.context(credentials, ssl.PROTOCOL_TLS_CLIENT)


def connect(connection: GuestConnection) -> ssl.SSLSocket:
    """Connect to the guest's device. Raises OperationFailed with the hypervisor's reason if it
    refuses, InUse if another client is connected, ConnectionFailed if it is unreachable."""
    try:
        raw_socket = socket.create_connection(
            (connection.address, connection.port), CONNECT_TIMEOUT_S
        )
        tls_listener.prepare(raw_socket)
        line = context(connection).wrap_socket(raw_socket, server_hostname=reach.CERTIFICATE_NAME)
    except OSError as exc:
        raise unreachable(connection, exc) from exc
    try:
        first_line = _read_line(line)
    except OSError as exc:
        line.close()
        raise unreachable(connection, exc) from exc
    error = refusal(connection, first_line)
    if error is not None:
        line.close()
        raise error
    line.settimeout(None)
    return line


def unreachable(connection: GuestConnection, exc: Exception) -> errors.ConnectionFailed:
    """The error for an unreachable hypervisor."""
    return errors.ConnectionFailed(
        f"cannot connect to {connection.host} at {connection.address} port {connection.port}: "
        f"{exc}; check virt:reach:addresses and the hypervisor's firewall"
    )


def refusal(connection: GuestConnection, first_line: bytes) -> errors.OperationFailed | None:
    """The error for a client that the hypervisor refuses; None if it accepts."""
    if first_line == reach.ACCEPTED:
        return None
    text = first_line.decode(errors="replace").strip()
    kind = reach.InUse if text.startswith(reach.IN_USE) else errors.OperationFailed
    reason = text.removeprefix(reach.IN_USE).removeprefix(reach.REFUSED)
    reason = reason or "the connection was closed without a message"
    return kind(f"{connection.host}: {reason}")


def _read_line(line: ssl.SSLSocket) -> bytes:
    """The hypervisor's first line, without any byte that follows."""
    data, deadline = b"", time.monotonic() + CONNECT_TIMEOUT_S
    while not data.endswith(b"\n") and len(data) < _MAX_LINE_BYTES:
        line.settimeout(max(0.1, deadline - time.monotonic()))
        chunk = line.recv(1)
        if not chunk or time.monotonic() > deadline:
            break
        data += chunk
    return data
