"""The way from this master to one guest's screen or serial port: its hypervisor waits for one
caller, and the two know each other by certificates that were made for this one time.

Where the hypervisor is, is this master's own knowledge: whatever a hypervisor answers, no other
machine is connected to.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, settings
from saltvirt.answers import reach
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.placement import facts
from saltvirt.schema import Message
from saltvirt.system import tls_listener

CONNECT_TIMEOUT_S = 10
_DAYS = 1
# the hypervisor's first line
_MAX_LINE_BYTES = 4096


@dataclass(frozen=True)
class GuestConnection(Message):
    """uuid: of the guest. host: a minion id; address, port: where it waits. authority: of the
    certificate that it shows. certificate, key: what the caller shows; all in PEM. type: of the
    display, or of the serial port's device."""

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


def request_relay(fleet: Fleet, name: str, kind: str, **options: Any) -> GuestConnection:
    """Has the guest's hypervisor wait for a caller, for 40 s. options: of its virt.reach. Raises
    NotFound, Refused, and as Fleet.one does."""
    host = host_of(fleet, name)
    pair = own_pair.generate(reach.CERTIFICATE_NAME, certs.CLIENT, _DAYS)
    arguments = {"vm_": name, "kind": kind, "caller": pair.authority, **options}
    response = reach.Reach.from_answer(fleet.call(host, "virt.reach", arguments, long=False), host)
    if response.kind != kind or not 0 < response.port < 65536:
        raise errors.BadAnswer(f"{host} answers of something else than was asked for")
    authority = own_pair.authority(response.authority, f"{host}: authority")
    address = address_of(settings.of_master(fleet.opts), host)
    return GuestConnection(
        name, response.uuid, host, kind, response.type, address, response.port, authority,
        pair.certificate, pair.key,
    )  # fmt: skip


def address_of(get: settings.Get, host: str) -> str:
    """Where a hypervisor is, by the master's configuration. Raises InvalidInput."""
    for minion_id, address in settings.mapping(get, "reach:addresses").items():
        if not isinstance(address, str) or not address:
            raise settings.invalid(f"reach:addresses:{minion_id}", address, "a name or an address")
        if minion_id == host:
            return address
    return host


def host_of(fleet: Fleet, name: str) -> str:
    """Where the guest runs. Raises NotFound, OperationFailed: it is off."""
    host, state = find.last_seen(fleet, name) or find.locate(fleet, name)
    if state not in facts.ACTIVE:
        raise errors.OperationFailed(f"{name} is off: salt-run virt.start {name}")
    return host


def context(connection: GuestConnection) -> ssl.SSLContext:
    """By which the caller is known to that hypervisor, and trusts nobody else."""
    credentials = tls_listener.TlsCredentials(
        connection.authority, connection.certificate, connection.key, connection.authority
    )
    return tls_listener.context(credentials, ssl.PROTOCOL_TLS_CLIENT)


def connect(connection: GuestConnection) -> ssl.SSLSocket:
    """A line to what is the guest's: what is read and written is its own. Raises OperationFailed:
    the hypervisor says why not; ConnectionFailed: it is not reached."""
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
    reason = refusal(first_line)
    if reason is not None:
        line.close()
        raise errors.OperationFailed(f"{connection.host}: {reason}")
    line.settimeout(None)
    return line


def unreachable(connection: GuestConnection, exc: Exception) -> errors.ConnectionFailed:
    """The error for a hypervisor that cannot be connected to."""
    return errors.ConnectionFailed(
        f"{connection.host} is not reached at {connection.address} port {connection.port}: {exc}; "
        "virt:reach:addresses says where it is, and its firewall lets this master in"
    )


def refusal(first_line: bytes) -> str | None:
    """Why the hypervisor does not let the caller in; None where it does."""
    if first_line == b"ok\n":
        return None
    return (
        first_line.decode(errors="replace").removeprefix("no ").strip() or "it ended without a word"
    )


def _read_line(line: ssl.SSLSocket) -> bytes:
    """The hypervisor's first line, and nothing of what follows."""
    data, deadline = b"", time.monotonic() + CONNECT_TIMEOUT_S
    while not data.endswith(b"\n") and len(data) < _MAX_LINE_BYTES:
        line.settimeout(max(0.1, deadline - time.monotonic()))
        chunk = line.recv(1)
        if not chunk or time.monotonic() > deadline:
            break
        data += chunk
    return data
