"""ifcfg files of wicked (SUSE) and of network-scripts (older Red Hat)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
# address settings; a suffix such as _0 or 2 denotes further ones
_ADDRESS = re.compile(
    r"(?:BOOTPROTO|IPADDR|PREFIX|PREFIXLEN|NETMASK|BROADCAST|NETWORK|GATEWAY|DNS|DOMAIN|SEARCH|"
    r"PEERDNS|DEFROUTE|DHCP\w*|DHCLIENT\w*|IPV4_\w*|IPV6\w*|IPV6INIT|LABEL|SCOPE_IP|ZONE|"
    r"FIREWALL)(?:_?\w*)"
)


@dataclass(frozen=True)
class Dialect:
    """One of the two formats.

    routes: kinds of files of routes and rules. up, down: command to bring an interface up or down.
    bridge, port: lines of the files of a bridge and of its port, with {name}, {port} and {mac}.
    vlan: lines of a VLAN port; silent: lines of a bridge without an address.
    """

    folder: str
    routes: tuple[str, ...]
    up: tuple[str, ...]
    down: tuple[str, ...]
    bridge: tuple[str, ...]
    port: tuple[str, ...]
    vlan: tuple[str, ...]
    silent: tuple[str, ...]


WICKED = Dialect(
    folder="etc/sysconfig/network",
    routes=("ifroute", "ifrule"),
    up=("wicked", "ifup"),
    down=("wicked", "ifdown"),
    bridge=("STARTMODE='auto'", "BRIDGE='yes'", "BRIDGE_PORTS='{port}'", "BRIDGE_STP='off'",
            "BRIDGE_FORWARDDELAY='0'", "LLADDR='{mac}'"),
    port=("BOOTPROTO='none'", "STARTMODE='auto'"),
    vlan=("ETHERDEVICE='{interface}'", "VLAN_ID='{vlan}'"),
    silent=("BOOTPROTO='none'",),
)  # fmt: skip
SCRIPTS = Dialect(
    folder="etc/sysconfig/network-scripts",
    routes=("route", "route6", "rule", "rule6"),
    up=("ifup",),
    down=("ifdown",),
    bridge=("DEVICE={name}", "TYPE=Bridge", "ONBOOT=yes", "STP=off", "DELAY=0", "MACADDR={mac}"),
    port=("BOOTPROTO=none", "ONBOOT=yes", "BRIDGE={name}"),
    vlan=("DEVICE={port}", "VLAN=yes", "PHYSDEV={interface}", "VLAN_ID={vlan}"),
    silent=("BOOTPROTO=none", "IPV6INIT=no"),
)
_OF_THE_FILE = {
    *("BRIDGE", "DEVICE", "NAME", "UUID", "ONBOOT", "STARTMODE", "NM_CONTROLLED", "TYPE"),
    "PROXY_METHOD",
}


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan if wicked or network-scripts have a file for the interface."""
    dialect = _dialect(interface, host)
    return plan(bridge, interface, dialect, host) if dialect else None


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan of a bridge on a VLAN if one of them has a file for the interface."""
    dialect = _dialect(vlan.interface, host)
    if not dialect:
        return None
    host.refuse_file(vlan.bridge, f"/{dialect.folder}/ifcfg-{vlan.bridge}")
    names = {"name": vlan.bridge, "port": vlan.port, "interface": vlan.interface,
             "vlan": vlan.number}  # fmt: skip
    lines = [line for line in dialect.bridge if "{mac}" not in line]
    first = f"/{dialect.folder}/ifcfg-"
    return BridgePlan(
        files={
            f"{first}{vlan.bridge}": _text((*lines, *dialect.silent), names, ()),
            f"{first}{vlan.port}": _text((*dialect.port, *dialect.vlan), names, ()),
        },
        before=(),
        apply=((*dialect.up, vlan.port), (*dialect.up, vlan.bridge)),
        undo=(
            (*dialect.down, vlan.bridge),
            ("ip", "link", "delete", vlan.bridge),
            vlan.delete_command,
        ),
    )


def _dialect(interface: str, host: BridgeHost) -> Dialect | None:
    """The installed one that has a file for the interface."""
    for dialect, program in ((WICKED, "wicked"), (SCRIPTS, "ifup")):
        text = host.read(f"{dialect.folder}/ifcfg-{interface}")
        if text and host.run(("sh", "-c", f"command -v {program}")):
            return dialect
    return None


def plan(bridge: str, interface: str, dialect: Dialect, host: BridgeHost) -> BridgePlan:
    """Move the interface's address lines and routes to the bridge's files."""
    folder = f"/{dialect.folder}"
    host.refuse_file(bridge, f"{folder}/ifcfg-{bridge}")
    text = host.read(f"{folder}/ifcfg-{interface}")
    lines = [line for line in text.splitlines() if _LINE.match(line)]
    bridge_lines = [line for line in lines if _ADDRESS.fullmatch(_word(line))]
    port_lines = [line for line in lines if line not in bridge_lines and _stays(line, dialect)]
    names = {"name": bridge, "port": interface, "mac": host.mac(interface)}
    files: dict[str, str | None] = {
        f"{folder}/ifcfg-{bridge}": _text(dialect.bridge, names, bridge_lines),
        f"{folder}/ifcfg-{interface}": _text(dialect.port, names, port_lines),
    }
    _refuse_routes(interface, host)
    name = rf"(?<![\w.:-]){re.escape(interface)}(?![\w.:-])"
    for kind in dialect.routes:
        routes = host.read(f"{folder}/{kind}-{interface}")
        if routes:
            files[f"{folder}/{kind}-{bridge}"] = re.sub(name, bridge, routes)
            files[f"{folder}/{kind}-{interface}"] = None
    return BridgePlan(
        files=files,
        before=((*dialect.down, interface),),
        apply=((*dialect.up, interface), (*dialect.up, bridge)),
        undo=((*dialect.down, bridge), ("ip", "link", "delete", bridge), (*dialect.up, interface)),
    )


def _refuse_routes(interface: str, host: BridgeHost) -> None:
    """Raise Unsupported if wicked's file of all routes has one through the interface: the file also
    concerns other interfaces, and a route through the port would be lost."""
    path = f"/{WICKED.folder}/routes"
    if re.search(rf"(?m)^[^#]*\s{re.escape(interface)}(?:\s|$)", host.read(path)):
        raise Unsupported(
            f"{path} has routes through {interface}: move them to ifroute-{interface}, "
            "then apply this again"
        )


def _word(line: str) -> str:
    """The name of the setting of a line."""
    match = _LINE.match(line)
    return match[1] if match else ""


def _stays(line: str, dialect: Dialect) -> bool:
    """Whether a line stays with the port; network-scripts need the device and its hardware
    address."""
    name = _word(line)
    if dialect is SCRIPTS and name in ("DEVICE", "TYPE", "NAME", "UUID", "NM_CONTROLLED"):
        return True
    return name not in _OF_THE_FILE


def _text(lines: Iterable[str], names: Mapping[str, object], extra: Iterable[str]) -> str:
    return "\n".join([*(line.format(**names) for line in lines), *extra]) + "\n"
