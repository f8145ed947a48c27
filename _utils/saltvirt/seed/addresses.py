"""Static addresses in network configuration: detect them, and replace them with DHCP."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SECTION = re.compile(r"\s*\[([^]]*)\]")
_CIDR = re.compile(r"(?m)(?:^\s*-\s*|[\[,]\s*)[\"']?[0-9A-Fa-f.:]+/\d{1,3}\b")


def _has(pattern: str, text: str) -> bool:
    return re.search(f"(?m)^[ \t]*{pattern}", text) is not None


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """(section, line) of a text in the format of systemd or NetworkManager."""
    section = ""
    for line in text.splitlines():
        match = _SECTION.match(line)
        section = match.group(1) if match else section
        yield section, line


def in_netplan(text: str) -> bool:
    return _CIDR.search(text) is not None


def in_networkd(text: str) -> bool:
    return _has(r"Address\s*=", text)


def networkd(text: str) -> str:
    """Replace static addresses of systemd-networkd."""
    lines: list[str] = []
    for section, line in _sections(text):
        if section in ("Address", "Route"):
            continue
        if section == "Network" and re.match(r"\s*(Address|Gateway|DHCP)\s*=", line):
            continue
        lines.append(line)
        if line.strip() == "[Network]":
            lines.append("DHCP=yes")
    return "\n".join(lines) + "\n"


def in_keyfile(text: str) -> bool:
    return _has(r"address\d*\s*=", text) or _has(r"method\s*=\s*manual", text)


def keyfile(text: str) -> str:
    """Replace static addresses of NetworkManager."""
    lines: list[str] = []
    for section, line in _sections(text):
        if section in ("ipv4", "ipv6"):
            if re.match(r"\s*(address(es)?\d*|route\d*(_options)?|gateway)\s*=", line):
                continue
            lines.append(re.sub(r"^\s*method\s*=\s*manual\s*$", "method=auto", line))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def in_ifupdown(text: str) -> bool:
    return _has(r"iface\s+\S+\s+inet6?\s+static\b", text)


_FIXED = re.compile(
    r"\s*(address|netmask|gateway|broadcast|network|pointopoint|(post-up|pre-down) route)\b"
)


def ifupdown(text: str) -> str:
    """Replace static addresses of ifupdown, with one stanza per interface and family."""
    lines: list[str] = []
    stanzas: set[tuple[str, str]] = set()
    static = skipped = False
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["iface"] and len(fields) > 3:
            name, family = fields[1].partition(":")[0], fields[2]
            static = fields[3] == "static"
            skipped = static and (name, family) in stanzas
            stanzas.add((name, family))
            method = "dhcp" if family == "inet" else "auto"
            new_line = f"iface {name} {family} {method}" if static else line
        else:
            if line[:1].strip() and not line.startswith("#"):
                static = skipped = False
            new_line = line
        if not skipped and not (static and _FIXED.match(line)):
            lines.append(new_line)
    return "\n".join(lines) + "\n"


def in_ifcfg(text: str) -> bool:
    return _has(r"IP(V6)?ADDR", text)


def ifcfg(text: str) -> str:
    """Replace static addresses of ifcfg files of EL and SUSE."""
    pattern = re.compile(
        r"\s*(IPADDR|NETMASK|PREFIX|GATEWAY|IPV6ADDR|IPV6_DEFAULTGW|BROADCAST|IPV6_AUTOCONF"
        r"|IPV6_FORCE_ACCEPT_RA)[A-Z0-9_]*="
    )
    lines = [line for line in text.splitlines() if not pattern.match(line)]
    lines = [line for line in lines if not re.match(r"\s*BOOTPROTO=", line)]
    return "\n".join([*lines, "BOOTPROTO=dhcp"]) + "\n"
