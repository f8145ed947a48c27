"""Open vSwitch: its database stores the bridge, so no file is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan

if TYPE_CHECKING:
    from saltvirt.hostnet.bridge.plan import BridgeHost, Run


def plan(bridge: str, interface: str | None, host: BridgeHost) -> BridgePlan:
    """The BridgePlan of a bridge with that port; interface None: without a port.

    Raises Unsupported if Open vSwitch is missing, and for an interface through which the host is
    reached.
    """
    if not host.run(("ovs-vsctl", "--version")):
        raise Unsupported("ovs-vsctl is missing: install Open vSwitch first")
    if not host.run(("ovs-vsctl", "--timeout=10", "show")):
        raise Unsupported("Open vSwitch's database does not respond: start its service first")
    if bridge in host.run(("ovs-vsctl", "--timeout=10", "list-br")).split():
        raise Unsupported(f"Open vSwitch has a bridge {bridge}, but the host has no such interface")
    apply: list[tuple[str, ...]] = [("ovs-vsctl", "--timeout=30", "--may-exist", "add-br", bridge)]
    if interface:
        _refuse_used(bridge, interface, host)
        apply.append(("ovs-vsctl", "--timeout=30", "--may-exist", "add-port", bridge, interface))
        apply.append(("ip", "link", "set", interface, "up"))
    return BridgePlan(
        files={},
        before=(),
        apply=(*apply, ("ip", "link", "set", bridge, "up")),
        undo=(("ovs-vsctl", "--timeout=30", "--if-exists", "del-br", bridge),),
    )


def ports(bridge: str, run: Run) -> list[str]:
    """The names of the bridge's ports, including those of guests."""
    return run(("ovs-vsctl", "--timeout=10", "list-ports", bridge)).split()


def _refuse_used(bridge: str, interface: str, host: BridgeHost) -> None:
    """Refuse an interface with an address, which would become unreachable because it is not
    moved."""
    output = host.run(("ip", "-j", "addr", "show", interface))
    if not output:
        raise Unsupported(f"the host has no interface {interface}")
    link = json.loads(output)[0]
    addresses = [
        entry["local"] for entry in link.get("addr_info", ()) if entry.get("scope") != "link"
    ]
    if addresses:
        raise Unsupported(
            f"{interface} has the address {', '.join(addresses)}, which cannot be moved to "
            f"an Open vSwitch bridge: use an interface without an address for {bridge}"
        )
    if link.get("master"):
        raise Unsupported(
            f"{interface} is a port of {link['master']}, and can be a port of one bridge only"
        )
