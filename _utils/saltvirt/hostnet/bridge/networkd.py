"""systemd-networkd, configured by files of its own."""

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
    """The BridgePlan when a file in /etc/systemd/network configures the interface."""
    match = re.search(r"Network File: (\S+)", host.run(("networkctl", "status", interface)))
    if not match or not match[1].startswith(FOLDER):
        return None
    host.refuse_file(bridge, f"{FOLDER}0-{bridge}.netdev")
    text = _settings(match[1], host) + same_client(interface, host)
    return plan(bridge, interface, match[1], text, host.mac(interface))


def _settings(path: str, host: BridgeHost) -> str:
    """The text of a .network file and of its drop-ins, which systemd reads as if they were in it;
    one in /etc stands for one of the same name elsewhere."""
    name = Path(path).name
    drop_ins = {
        Path(drop_in).name: drop_in
        for folder in ("usr/lib", "run", "etc")
        for drop_in in host.glob(f"{folder}/systemd/network/{name}.d/*.conf")
    }
    texts = [host.read(path), *(host.read(drop_in) for _name, drop_in in sorted(drop_ins.items()))]
    return "\n".join(text.rstrip("\n") + "\n" for text in texts)


def same_client(interface: str, host: BridgeHost) -> str:
    """What keeps a DHCP server from taking the bridge for another client, as text of a file.

    networkd names itself by its machine and by a number that it makes from the interface's name;
    here: the number of the lease that the interface has. Without such a lease "".
    """
    lease = host.read(f"/run/systemd/netif/leases/{host.link(interface).get('ifindex')}")
    number = re.search(r"(?m)^CLIENTID=ff([0-9a-f]{8})", lease)
    return f"\n[DHCPv4]\nIAID={int(number[1], 16)}\n" if number else ""


def plan(bridge: str, interface: str, path: str, text: str, mac: str) -> BridgePlan:
    """path, text: the .network file that configures the interface now, and what is to be added."""
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
    """The settings of a .network file that the port needs, too: a bridge passes on no larger
    frames than its ports do."""
    mtu = re.search(r"(?m)^[ \t]*MTUBytes[ \t]*=.+$", text)
    return f"\n[Link]\n{mtu[0]}\n" if mtu else ""


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan of a bridge over a VLAN when networkd has a file for the interface.

    Raises Unsupported when that file is for other interfaces, too.
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
            f"{path} is not for {vlan.interface} alone: write Name={vlan.interface} there, or "
            f"make {vlan.bridge} by hand"
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
