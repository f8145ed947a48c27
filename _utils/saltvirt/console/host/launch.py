"""Start the relay program that connects one client to one guest."""

from __future__ import annotations

from saltvirt import errors
from saltvirt.answers import reach
from saltvirt.console.host import agent, relay
from saltvirt.console.host.relay import RelayRequest
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup, stats
from saltvirt.system import detached, paths

RUN = f"{paths.RUN}/reach"


def probe(conn: libvirt.virConnect, name: str, kind: str, number: int = 0) -> tuple[str, str]:
    """(UUID, type of the display or serial port) of a guest. Raises NotFound, and OperationFailed
    if the guest is off or lacks the device."""
    dom = lookup.lookup(conn, name)
    tree = stats.tree(dom)
    if not dom.isActive():
        raise errors.OperationFailed(f"{name} is off: start it first")
    if kind == reach.AGENT:
        agent.require(dom, name)
        return dom.UUIDString(), reach.AGENT
    if kind == reach.DISPLAY:
        types = [graphics.get("type") or "" for graphics in tree.iterfind("devices/graphics")]
        if number >= len(types):
            raise errors.OperationFailed(f"{name} has no display{f' {number}' if types else ''}")
        return dom.UUIDString(), types[number]
    serial = next(tree.iterfind("devices/console"), None)
    if serial is None:
        serial = next(tree.iterfind("devices/serial"), None)
    if serial is None or serial.get("type") != "pty":
        raise errors.OperationFailed(f"{name} has no serial console that libvirt can open")
    return dom.UUIDString(), "pty"


def start_relay(library: str, request: RelayRequest) -> int:
    """Start the relay program and return the port on which it waits. library: the folder of the
    package saltvirt. Raises OperationFailed if it does not start."""
    failure = "the connection could not be prepared"
    response = detached.spawn(library, relay.MODULE, request, failure, request.uuid, folder=RUN)
    return int(response["port"])
