"""systemd-networkd, configured by files of its own."""

import re
from pathlib import Path

from saltvirt.host.bridges.plan import Plan

FOLDER = "/etc/systemd/network/"


def find(bridge, interface, host):
    """The Plan when a file in /etc/systemd/network configures the interface."""
    found = re.search(r"Network File: (\S+)", host.run(("networkctl", "status", interface)))
    if not found or not found[1].startswith(FOLDER):
        return None
    return plan(bridge, interface, found[1], host.read(found[1]), host.mac(interface))


def plan(bridge, interface, path, text, mac):
    """path, text: the .network file that configures the interface now."""
    folder = Path(path).parent
    first = f"{folder}/0-{bridge}"  # networkd takes the first file that matches
    rest = re.sub(r"(?ms)^\[Match\]\n.*?(?=^\[|\Z)", "", text)
    return Plan(
        files={
            f"{first}.netdev": (
                f"[NetDev]\nName={bridge}\nKind=bridge\nMACAddress={mac}\n\n"
                "[Bridge]\nSTP=no\nForwardDelaySec=0\n"
            ),
            f"{first}.network": f"[Match]\nName={bridge}\n\n{rest}",
            f"{first}-port.network": (f"[Match]\nName={interface}\n\n[Network]\nBridge={bridge}\n"),
        },
        before=(),
        apply=(("networkctl", "reload"), ("networkctl", "reconfigure", interface)),
        undo=(
            ("ip", "link", "delete", bridge),
            ("networkctl", "reload"),
            ("networkctl", "reconfigure", interface),
        ),
    )
