"""systemd-networkd with its own files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan

if TYPE_CHECKING:
    from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan

FOLDER = "/etc/systemd/network/"


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan if a file in /etc/systemd/network configures the interface."""
    match = re.search(r"Network File: (\S+)", host.run(("networkctl", "status", interface)))
    if not match or not match[1].startswith(FOLDER):
        return None
    host.refuse_file(bridge, f"{FOLDER}0-{bridge}.netdev")
    text = _settings(match[1], host) + same_client(interface, host)
    return plan(bridge, interface, match[1], text, host.mac(interface))


def _settings(path: str, host: BridgeHost) -> str:
    """The text of a .network file and of its drop-ins, which systemd reads as one. A drop-in in
    /etc replaces one of the same name elsewhere."""
    name = Path(path).name
    drop_ins = {
        Path(drop_in).name: drop_in
        for folder in ("usr/lib", "run", "etc")
        for drop_in in host.glob(f"{folder}/systemd/network/{name}.d/*.conf")
    }
    texts = [host.read(path), *(host.read(drop_in) for _name, drop_in in sorted(drop_ins.items()))]
    return "\n".join(text.rstrip("\n") + "\n" for text in texts)


def same_client(interface: str, host: BridgeHost) -> str:
    """Settings that make the DHCP server recognize the bridge as the same client.

    networkd identifies itself by its machine and by a number derived from the interface's name; the
    settings contain the number of the interface's current lease. Empty without such a lease.
    """
    lease = host.read(f"/run/systemd/netif/leases/{host.link(interface).get('ifindex')}")
    number = re.search(r"(?m)^CLIENTID=ff([0-9a-f]{8})", lease)
    return f"\n[DHCPv4]\nIAID={int(number[1], 16)}\n" if number else ""


def plan(bridge: str, interface: str, path: str, text: str, mac: str) -> BridgePlan:
    """The BridgePlan. path, text: the .network file of the interface, and the text to add."""
    folder = Path(path).parent
    first = f"{folder}/0-{bridge}"  # networkd takes the first file that matches
    rest = re.sub(r"(?ms)^[ \t]*\[Match\][ \t\r]*\n.*?(?=^[ \t]*\[|\Z)", "", text)
    return BridgePlan(
        files={
            f"{first}.netdev": (
                f"[NetDev]\nName={bridge}\nKind=bridge\nMACAddress={mac}\n\n"
                "[Bridge]\nSTP=no\nForwardDelaySec=0\n"
            ),
            f"{first}.network": f"[Match]\nName={bridge}\n\n{rest}",
            f"{first}-port.network": (
                f"[Match]\nName={interface}\n\n[Network]\nBridge={bridge}\n{_cable(text)}"
            ),
        },
        before=(),
        apply=(("networkctl", "reload"), ("networkctl", "reconfigure", interface)),
        undo=(
            ("ip", "link", "delete", bridge),
            ("networkctl", "reload"),
            ("networkctl", "reconfigure", interface),
        ),
    )


def _cable(text: str) -> str:
    """The settings of a .network file that the port needs, too: a bridge forwards no larger frames
    than its ports."""
    mtu = re.search(r"(?m)^[ \t]*MTUBytes[ \t]*=.+$", text)
    return f"\n[Link]\n{mtu[0]}\n" if mtu else ""


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan of a bridge on a VLAN if networkd has a file for the interface.

    Raises Unsupported if that file also configures other interfaces.
    """
    output = host.run(("networkctl", "status", vlan.interface))
    match = re.search(r"Network File: (/\S+)", output)
    if not match:
        return None
    host.refuse_file(vlan.bridge, f"{FOLDER}0-{vlan.bridge}.netdev")
    path = Path(match[1])
    only = rf"^(?:Name={re.escape(vlan.interface)}|(?:Permanent)?MACAddress=\S+)\s*$"
    if not re.search(only, host.read(path), re.MULTILINE):
        raise Unsupported(
            f"{path} is not for {vlan.interface} only: add Name={vlan.interface} to it, or "
            f"create {vlan.bridge} yourself"
        )
    first, reload = f"{FOLDER}0-{vlan.bridge}", ("networkctl", "reload")
    silent = "LinkLocalAddressing=no\nIPv6AcceptRA=no\n\n[Link]\nRequiredForOnline=no\n"
    return BridgePlan(
        files={
            f"{first}.netdev": (
                f"[NetDev]\nName={vlan.bridge}\nKind=bridge\n\n"
                "[Bridge]\nSTP=no\nForwardDelaySec=0\n"
            ),
            f"{first}.network": f"[Match]\nName={vlan.bridge}\n\n[Network]\n{silent}",
            f"{first}-vlan.netdev": (
                f"[NetDev]\nName={vlan.port}\nKind=vlan\n\n[VLAN]\nId={vlan.number}\n"
            ),
            f"{first}-vlan.network": (
                f"[Match]\nName={vlan.port}\n\n[Network]\nBridge={vlan.bridge}\n{silent}"
            ),
            f"{FOLDER}{path.name}.d/{vlan.bridge}.conf": f"[Network]\nVLAN={vlan.port}\n",
        },
        before=(),
        apply=(reload, ("networkctl", "reconfigure", vlan.interface)),
        undo=(("ip", "link", "delete", vlan.bridge), reload, vlan.delete_command,
              ("networkctl", "reconfigure", vlan.interface)),
    )  # fmt: skip
