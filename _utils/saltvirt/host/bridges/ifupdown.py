"""ifupdown: /etc/network/interfaces of Debian."""

import re

from saltvirt.errors import Unsupported
from saltvirt.host.bridges.plan import Plan

PLACES = ("etc/network/interfaces", "etc/network/interfaces.d/*")


def find(bridge, interface, host):
    """The Plan when a stanza configures the interface."""
    for path in (path for pattern in PLACES for path in host.glob(pattern)):
        text = host.read(path)
        if re.search(rf"^iface[ \t]+{re.escape(interface)}[ \t]", text, re.MULTILINE):
            return plan(bridge, interface, path, text)
    return None


def plan(bridge, interface, path, text):
    """path, text: the file with the interface's stanza.

    Raises Unsupported when the stanza is not one that we understand.
    """
    stanza = re.compile(rf"^iface[ \t]+{re.escape(interface)}[ \t]+inet[ \t]", re.MULTILINE)
    if len(stanza.findall(text)) != 1 or re.search(r"bridge[_-]ports", text):
        raise Unsupported(
            f"{path} does not have one plain 'iface {interface} inet …': do it by hand"
        )
    ports = (
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || ip link add {bridge} type bridge\n"
        f"    pre-up ip link set {interface} master {bridge} up\n"
        f"    post-down ip link delete {bridge}\n"
    )
    head = stanza.search(text)
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
    return Plan(
        files={str(path): changed},
        before=(("ifdown", "--force", interface),),
        apply=(("ifup", bridge),),
        undo=(("ifdown", "--force", bridge), ("ifup", interface)),
    )
