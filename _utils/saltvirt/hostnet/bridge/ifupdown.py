"""ifupdown: /etc/network/interfaces of Debian."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge.plan import BridgePlan, already_configured

if TYPE_CHECKING:
    from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan

PATTERNS = ("etc/network/interfaces", "etc/network/interfaces.d/*")
# options of a stanza with the same meaning on a bridge, see interfaces(5)
MOVED = {
    *("address", "netmask", "broadcast", "network", "gateway", "metric", "mtu", "hostname"),
    *("client", "leasehours", "leasetime", "vendor", "dns-nameservers", "dns-nameserver"),
    *(
        "dns-search",
        "dns-domain",
        "accept_ra",
        "autoconf",
        "privext",
        "dad-attempts",
        "request_prefix",
    ),
    *("pre-up", "up", "post-up", "pre-down", "down", "post-down"),
}
_HEADS = r"(?:iface|auto|allow-\S+|mapping|source|source-directory|no-auto-down|no-scripts)\b"
# commands about addresses, which may name the interface
_ADDRESSES = re.compile(r"(?:/\S*/)?(?:ip(?: -[46])? (?:r|ro|route|rule|a|addr|address)|route)\s")


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan if a stanza configures the interface."""
    paths = _stanzas(interface, host)
    if len(paths) > 1:
        raise _by_hand(f"{' and '.join(paths)} both have a stanza for {interface}")
    if paths:
        _refuse_stanza(bridge, host)
    return plan(bridge, interface, paths[0], host.read(paths[0])) if paths else None


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan on a VLAN, in a separate file, if a stanza configures the interface.

    Raises Unsupported if ifupdown would not read such a file.
    """
    if not _stanzas(vlan.interface, host):
        return None
    _refuse_stanza(vlan.bridge, host)
    reads = r"^source(?:-directory)?[ \t]+(?:/etc/network/)?interfaces\.d(?:/\*?)?[ \t]*$"
    if not re.search(reads, host.read(PATTERNS[0]), re.MULTILINE):
        raise Unsupported(
            f"/{PATTERNS[0]} lacks the line 'source /etc/network/interfaces.d/*': add it first"
        )
    bridge, port = vlan.bridge, vlan.port
    add = f"ip link add link {vlan.interface} name {port} type vlan id {vlan.number}"
    text = (
        f"auto {bridge}\n"
        f"iface {bridge} inet manual\n"
        f"    pre-up ip link set {vlan.interface} up\n"
        f"    pre-up ip link show {port} >/dev/null 2>&1 || {add}\n"
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || ip link add {bridge} type bridge\n"
        # the guests' network is not the host's
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


def _stanzas(interface: str, host: BridgeHost) -> list[str]:
    """The files with a stanza of the interface."""
    head = re.compile(rf"^iface[ \t]+{re.escape(interface)}[ \t]", re.MULTILINE)
    paths = (path for pattern in PATTERNS for path in host.glob(pattern))
    return [path for path in paths if head.search(host.read(path))]


def _refuse_stanza(bridge: str, host: BridgeHost) -> None:
    for path in _stanzas(bridge, host):
        raise already_configured(bridge, path)


def _by_hand(reason: str) -> Unsupported:
    return Unsupported(f"{reason}: create the bridge yourself, then apply this again")


def plan(bridge: str, interface: str, path: str, text: str) -> BridgePlan:
    """Move the interface's stanzas to the bridge, and leave the interface without an address.

    path, text: the file with the interface's stanzas: one ``inet`` and at most one ``inet6``. VLANs
    of the interface stay on it, and are taken down and up with it.

    Raises Unsupported for a stanza whose meaning would change on a bridge.
    """
    _check(interface, path, text)
    name = rf"(?<![\w.:-]){re.escape(interface)}(?![\w.:-])"
    changed = _started(bridge, name, _moved(bridge, interface, text, name))
    if not _is_started(bridge, changed):  # another file starts the interface, or a pattern
        changed = changed.rstrip("\n") + f"\n\nauto {bridge}\n"
    changed = changed.rstrip("\n") + f"\n\niface {interface} inet manual\n"
    vlans = _vlans(interface, text)
    up = tuple(("ifup", vlan) for vlan in vlans)
    down = tuple(("ifdown", "--force", vlan) for vlan in vlans)
    return BridgePlan(
        files={str(path): changed},
        before=(*down, ("ifdown", "--force", interface)),
        apply=(("ifup", bridge), *up),
        undo=(("ifdown", "--force", bridge), ("ifup", interface), *up),
    )


def _check(interface: str, path: str, text: str) -> None:
    """Raise Unsupported for what a bridge cannot take over."""
    if re.search(r"[.:]|^vlan|^bond|^br", interface):
        raise _by_hand(f"{interface} is itself a VLAN, a bond or a bridge")
    if re.search(rf"^iface[ \t]+{re.escape(interface)}:", text, re.MULTILINE):
        raise _by_hand(f"{path} has aliases of {interface}, which would stay on the bridge's port")
    families = [family for family, _body in _bodies(interface, text)]
    plain = sorted(families) in (["inet"], ["inet", "inet6"])
    if not plain or re.search(r"bridge[_-]ports", text):
        raise _by_hand(f"{path} does not have one plain 'iface {interface} inet …'")
    for _family, body in _bodies(interface, text):
        for option, value in _options(body):
            if option not in MOVED:
                raise _by_hand(
                    f"{path} has {option!r} for {interface}, which is not supported for a bridge"
                )
            names_it = re.search(rf"(?<![\w.-])(?:{re.escape(interface)}|\$IFACE)\b", value)
            if names_it and not _ADDRESSES.match(value):
                raise _by_hand(f"{path} has '{option} {value}', which refers to {interface}")


def _bodies(interface: str, text: str) -> list[tuple[str, str]]:
    """(family, lines after the head) of each stanza of the interface."""
    stanza = re.compile(
        rf"^iface[ \t]+{re.escape(interface)}[ \t]+(\S+).*\n((?:(?!{_HEADS}).*(?:\n|\Z))*)",
        re.MULTILINE,
    )
    return [(match[1], match[2]) for match in stanza.finditer(text + "\n")]


def _options(body: str) -> list[tuple[str, str]]:
    """(option, value) of the lines of a stanza."""
    lines = (line.strip() for line in body.splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return [(option, "".join(value)) for option, *value in pairs]


def _started(bridge: str, name: str, text: str) -> str:
    """The text in which the bridge comes up at boot if the interface did.

    ``allow-hotplug`` would never bring up the bridge: udev reports no bridge before it exists.
    """

    def line(match: re.Match[str]) -> str:
        other_names = re.sub(name, "", match[2]).split()
        keyword = "auto" if match[1] == "allow-hotplug" else match[1]
        if keyword != match[1] and other_names:
            return f"{keyword} {bridge}\n{match[1]} {' '.join(other_names)}"
        return f"{keyword}{re.sub(name, bridge, match[2])}"

    heads = rf"^(auto|allow-auto|allow-hotplug)([ \t].*?{name}.*)$"
    return re.sub(heads, line, text, flags=re.MULTILINE)


def _is_started(bridge: str, text: str) -> bool:
    """Whether a line of the text brings the bridge up at boot."""
    lines = (line.split() for line in text.splitlines())
    return any(line[:1] in (["auto"], ["allow-auto"]) and bridge in line[1:] for line in lines)


def _moved(bridge: str, interface: str, text: str, name: str) -> str:
    """The text with the interface's stanzas under the bridge's name. The first stanza creates the
    bridge with the interface's hardware address; udev would assign another one."""
    mac = f"$(cat /sys/class/net/{interface}/address)"
    ports = (
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || "
        f"ip link add {bridge} address {mac} type bridge\n"
        f"    pre-up ip link set {interface} master {bridge} up\n"
        f"    post-down ip link delete {bridge}\n"
    )
    lines: list[str] = []
    within = False
    for line in text.splitlines(keepends=True):
        head = bool(re.match(_HEADS, line))
        within = bool(re.match(rf"iface[ \t]+{name}[ \t]", line)) if head else within
        if head and within:
            lines += [re.sub(name, bridge, line, count=1).rstrip("\n") + "\n", ports]
            ports = ""
        else:
            lines.append(_line(line, bridge, interface, name) if within else line)
    return "".join(lines)


def _line(line: str, bridge: str, interface: str, name: str) -> str:
    """A line of a stanza that moves: routes use the bridge, and the MTU is also set on the port."""
    option, value = (_options(line) or [("", "")])[0]
    if option == "mtu":
        return f"{line.rstrip()}\n    pre-up ip link set {interface} mtu {value}\n"
    return re.sub(name, bridge, line) if _ADDRESSES.match(value) else line


def _vlans(interface: str, text: str) -> list[str]:
    """The VLANs on the interface that have a stanza of their own."""
    names = re.findall(rf"^iface[ \t]+({re.escape(interface)}\.[0-9]+)[ \t]", text, re.MULTILINE)
    heads = [match[1] for match in re.finditer(r"^iface[ \t]+(\S+)[ \t]", text, re.MULTILINE)]
    for head in heads:
        raw = [("vlan-raw-device", interface), ("vlan_raw_device", interface)]
        if any(option in raw for _f, body in _bodies(head, text) for option in _options(body)):
            names.append(head)
    return sorted(set(names))
