"""ifupdown: /etc/network/interfaces of Debian."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan

if TYPE_CHECKING:
    from saltvirt.hostnet.bridge.plan import BridgeHost, Vlan

PLACES = ("etc/network/interfaces", "etc/network/interfaces.d/*")


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan when a stanza configures the interface."""
    path = _stanza(interface, host)
    return plan(bridge, interface, path, host.read(path)) if path else None


def tagged(vlan: Vlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan over a VLAN, in a file of its own, when a stanza has the interface.

    Raises Unsupported when no such file would be read.
    """
    if not _stanza(vlan.interface, host):
        return None
    reads = r"^source(?:-directory)?[ \t]+(?:/etc/network/)?interfaces\.d(?:/\*?)?[ \t]*$"
    if not re.search(reads, host.read(PLACES[0]), re.MULTILINE):
        raise Unsupported(
            f"/{PLACES[0]} has no line 'source /etc/network/interfaces.d/*': write it there first"
        )
    bridge, port = vlan.bridge, vlan.port
    add = f"ip link add link {vlan.interface} name {port} type vlan id {vlan.number}"
    text = (
        f"auto {bridge}\n"
        f"iface {bridge} inet manual\n"
        f"    pre-up ip link set {vlan.interface} up\n"
        f"    pre-up ip link show {port} >/dev/null 2>&1 || {add}\n"
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || ip link add {bridge} type bridge\n"
        # the guests' network is none of the host's
        f"    pre-up sysctl -q -w net/ipv6/conf/{bridge}/disable_ipv6=1 || true\n"
        f"    pre-up ip link set {port} master {bridge} up\n"
        f"    up ip link set {bridge} up\n"
        f"    post-down ip link delete {bridge}\n"
        f"    post-down ip link delete {port}\n"
    )
    name = re.sub(r"[^A-Za-z0-9_-]", "_", bridge)  # source-directory reads no others
    return BridgePlan(
        files={f"/etc/network/interfaces.d/{name}": text},
        before=(),
        apply=(("ifup", bridge),),
        undo=(("ifdown", "--force", bridge),),
    )


def _stanza(interface: str, host: BridgeHost) -> str | None:
    """The file with a stanza of the interface, None where there is none."""
    for path in (path for pattern in PLACES for path in host.glob(pattern)):
        if re.search(rf"^iface[ \t]+{re.escape(interface)}[ \t]", host.read(path), re.MULTILINE):
            return path
    return None


def plan(bridge: str, interface: str, path: str, text: str) -> BridgePlan:
    """path, text: the file with the interface's stanza.

    Raises Unsupported when the stanza is not one that we understand.
    """
    stanza = re.compile(rf"^iface[ \t]+{re.escape(interface)}[ \t]+inet[ \t]", re.MULTILINE)
    head = stanza.search(text)
    if head is None or len(stanza.findall(text)) != 1 or re.search(r"bridge[_-]ports", text):
        raise Unsupported(
            f"{path} does not have one plain 'iface {interface} inet …': do it by hand"
        )
    ports = (
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || ip link add {bridge} type bridge\n"
        f"    pre-up ip link set {interface} master {bridge} up\n"
        f"    post-down ip link delete {bridge}\n"
    )
    line_end = text.index("\n", head.end()) + 1 if "\n" in text[head.end() :] else len(text)
    first = text[head.start() : line_end].replace(interface, bridge, 1)
    changed = text[: head.start()] + first.rstrip("\n") + "\n" + ports + text[line_end:]
    changed = re.sub(
        rf"^((?:auto|allow-hotplug)[ \t].*?)\b{re.escape(interface)}\b",
        rf"\1{bridge}",
        changed,
        flags=re.MULTILINE,
    )
    changed = changed.rstrip("\n") + f"\n\niface {interface} inet manual\n"
    return BridgePlan(
        files={str(path): changed},
        before=(("ifdown", "--force", interface),),
        apply=(("ifup", bridge),),
        undo=(("ifdown", "--force", bridge), ("ifup", interface)),
    )
