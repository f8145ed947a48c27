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

from saltvirt import doors, errors, settings
from saltvirt.answers import reach
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.placement import facts
from saltvirt.wire import Fact

CONNECT_S = 10
_DAYS = 1
# the hypervisor's first line
_MOST_LINE = 4096


@dataclass(frozen=True)
class Way(Fact):
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


def opened(fleet: Fleet, name: str, kind: str, **options: Any) -> Way:
    """Has the guest's hypervisor wait for a caller, for 40 s. options: of its virt.reach. Raises
    NotFound, Refused, and as Fleet.one does."""
    host = host_of(fleet, name)
    pair = own_pair.made(reach.DOOR, certs.CLIENT, _DAYS)
    wanted = {"vm_": name, "kind": kind, "caller": pair.authority, **options}
    found = reach.Reach.from_answer(fleet.one(host, "virt.reach", wanted, long=False), host)
    if found.kind != kind or not 0 < found.port < 65536:
        raise errors.BadAnswer(f"{host} answers of something else than was asked for")
    told = own_pair.authority(found.authority, f"{host}: authority")
    address = address_of(settings.of_master(fleet.opts), host)
    return Way(
        name, found.uuid, host, kind, found.type, address, found.port, told,
        pair.certificate, pair.key,
    )  # fmt: skip


def address_of(get: settings.Get, host: str) -> str:
    """Where a hypervisor is, by the master's configuration. Raises InvalidInput."""
    for one, address in settings.mapping(get, "reach:addresses").items():
        if not isinstance(address, str) or not address:
            raise settings.wrong(f"reach:addresses:{one}", address, "a name or an address")
        if one == host:
            return address
    return host


def host_of(fleet: Fleet, name: str) -> str:
    """Where the guest runs. Raises NotFound, OperationFailed: it is off."""
    host, state = find.last_seen(fleet, name) or find.locate(fleet, name)
    if state not in facts.ACTIVE:
        raise errors.OperationFailed(f"{name} is off: salt-run virt.start {name}")
    return host


def context(way: Way) -> ssl.SSLContext:
    """By which the caller is known to that hypervisor, and trusts nobody else."""
    credentials = doors.Credentials(way.authority, way.certificate, way.key, way.authority)
    return doors.context(credentials, ssl.PROTOCOL_TLS_CLIENT)


def connected(way: Way) -> ssl.SSLSocket:
    """A line to what is the guest's: what is read and written is its own. Raises OperationFailed:
    the hypervisor says why not; ConnectionFailed: it is not reached."""
    try:
        plain = socket.create_connection((way.address, way.port), CONNECT_S)
        doors.prepare(plain)
        line = context(way).wrap_socket(plain, server_hostname=reach.DOOR)
    except OSError as exc:
        raise unreached(way, exc) from exc
    try:
        said = _line(line)
    except OSError as exc:
        line.close()
        raise unreached(way, exc) from exc
    why = refusal(said)
    if why is not None:
        line.close()
        raise errors.OperationFailed(f"{way.host}: {why}")
    line.settimeout(None)
    return line


def unreached(way: Way, exc: Exception) -> errors.ConnectionFailed:
    """The error for a hypervisor that cannot be connected to."""
    return errors.ConnectionFailed(
        f"{way.host} is not reached at {way.address} port {way.port}: {exc}; "
        "virt:reach:addresses says where it is, and its firewall lets this master in"
    )


def refusal(said: bytes) -> str | None:
    """Why the hypervisor does not let the caller in; None where it does."""
    if said == b"ok\n":
        return None
    return said.decode(errors="replace").removeprefix("no ").strip() or "it ended without a word"


def _line(line: ssl.SSLSocket) -> bytes:
    """The hypervisor's first line, and nothing of what follows."""
    found, until = b"", time.monotonic() + CONNECT_S
    while not found.endswith(b"\n") and len(found) < _MOST_LINE:
        line.settimeout(max(0.1, until - time.monotonic()))
        more = line.recv(1)
        if not more or time.monotonic() > until:
            break
        found += more
    return found
