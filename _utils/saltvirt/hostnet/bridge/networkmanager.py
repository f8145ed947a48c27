"""NetworkManager with its own profiles, created by nmcli."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan, already_configured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan

# settings that move from the old profile to the bridge's
MOVED = (
    *("ipv4.method", "ipv4.addresses", "ipv4.gateway", "ipv4.dns", "ipv4.dns-search"),
    *("ipv4.routes", "ipv4.route-metric", "ipv4.dhcp-client-id", "ipv4.may-fail"),
    *("ipv6.method", "ipv6.addresses", "ipv6.gateway", "ipv6.dns", "ipv6.dns-search"),
    *("ipv6.routes", "ipv6.addr-gen-mode", "connection.zone"),
    *("ipv4.never-default", "ipv4.ignore-auto-dns", "ipv4.ignore-auto-routes"),
    *("ipv4.routing-rules", "ipv6.never-default", "ipv6.ignore-auto-dns"),
    *("ipv6.ignore-auto-routes", "ipv6.routing-rules", "ipv6.route-metric"),
)
# settings that the port keeps, and those that decide whether it can be a port
OF_THE_PORT = ("802-3-ethernet.mtu",)
KIND = ("connection.type", "802-1x.eap")


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan if NetworkManager has an active profile on the interface."""
    uuid = _profile(interface, host)
    if not uuid:
        return None
    _refuse_profiles(bridge, (bridge, f"{bridge}-port-{interface}"), host)
    names = (*KIND, *OF_THE_PORT, *MOVED)
    output = host.run(("nmcli", "-t", "-f", ",".join(names), "connection", "show", "uuid", uuid))
    return plan(bridge, interface, uuid, settings(output), host.mac(interface))


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan on a VLAN, with two profiles, if NetworkManager has the interface."""
    if not _profile(vlan.interface, host):
        return None
    port = f"{vlan.bridge}-port-{vlan.port}"
    _refuse_profiles(vlan.bridge, (vlan.bridge, port), host)
    add = ("nmcli", "connection", "add")
    return BridgePlan(
        files={},
        before=(),
        apply=(
            (*add, "type", "bridge", "con-name", vlan.bridge, "ifname", vlan.bridge,
             "bridge.stp", "no", "ipv4.method", "disabled", "ipv6.method", "disabled"),
            (*add, "type", "vlan", "con-name", port, "ifname", vlan.port, "dev", vlan.interface,
             "id", str(vlan.number), "master", vlan.bridge, "slave-type", "bridge"),
            ("nmcli", "connection", "up", port),
            ("nmcli", "connection", "up", vlan.bridge),
        ),
        undo=(("nmcli", "connection", "delete", vlan.bridge, port),),
    )  # fmt: skip


def _refuse_profiles(bridge: str, names: tuple[str, ...], host: BridgeHost) -> None:
    """Refuse existing profiles of these names, because the rollback deletes profiles by name."""
    existing = host.run(("nmcli", "-t", "-f", "NAME", "connection", "show")).splitlines()
    for name in names:
        if name in existing:
            raise already_configured(bridge, f"NetworkManager's profile {name}")


def _profile(interface: str, host: BridgeHost) -> str | None:
    """The UUID of the interface's active profile; None if NetworkManager has no own profile."""
    output = host.run(("nmcli", "-t", "-f", "DEVICE,UUID", "connection", "show", "--active"))
    uuids = dict(line.split(":", 1) for line in output.splitlines() if ":" in line)
    state = host.run(("nmcli", "-g", "GENERAL.STATE", "device", "show", interface))
    return None if "externally" in state else uuids.get(interface)


def settings(output: str) -> dict[str, str]:
    """{name: value} of the output of ``nmcli -t -f`` for a profile: "name:value" lines, without
    settings of parts that the profile lacks, such as 802-1x."""
    unset = ("", "--", "-1", "default", "auto")
    pairs = (line.partition(":")[::2] for line in output.splitlines())
    return {
        name: value
        for name, value in pairs
        if value not in (unset[:-1] if name.endswith(".method") else unset)
    }


def plan(bridge: str, interface: str, uuid: str, values: Mapping[str, str], mac: str) -> BridgePlan:
    """The BridgePlan. uuid: the profile that has the address now; values: its settings.

    Raises Unsupported for a bond, a VLAN or another interface that is not a network card, and for
    one that authenticates to its switch.
    """
    kind = values.get("connection.type", "802-3-ethernet")
    if kind != "802-3-ethernet" or "802-1x.eap" in values:
        description = "with a login (802.1X)" if kind == "802-3-ethernet" else f"of type {kind}"
        raise Unsupported(
            f"{interface} has a profile of NetworkManager {description}: create {bridge} "
            "on top of it yourself, then apply this again"
        )
    port = f"{bridge}-port-{interface}"
    bridge_settings = [word for pair in _ordered(values) if pair[0] in MOVED for word in pair]
    port_settings = [word for pair in values.items() if pair[0] in OF_THE_PORT for word in pair]
    add = ("nmcli", "connection", "add")
    return BridgePlan(
        files={},
        before=(),
        apply=(
            (*add, "type", "bridge", "con-name", bridge, "ifname", bridge, "bridge.stp", "no",
             "bridge.mac-address", mac, "connection.autoconnect-priority", "10", *bridge_settings),
            (*add, "type", "ethernet", "con-name", port, "ifname", interface, "master", bridge,
             "connection.autoconnect-priority", "10", *port_settings),
            ("nmcli", "connection", "modify", "uuid", uuid, "connection.autoconnect", "no"),
            ("nmcli", "connection", "up", port),
            ("nmcli", "connection", "up", bridge),
        ),
        undo=(
            ("nmcli", "connection", "modify", "uuid", uuid, "connection.autoconnect", "yes"),
            ("nmcli", "connection", "delete", bridge, port),
            ("nmcli", "connection", "up", "uuid", uuid),
        ),
    )  # fmt: skip


def _ordered(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """The settings in an order that sets addresses before a manual method."""
    return sorted(values.items(), key=lambda pair: bool(re.search(r"\.method$", pair[0])))
