"""Addresses of this host."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess


def global_addresses(name: str | None = None) -> list[str]:
    """Return the global addresses of this host; with a name or address, those to which it
    resolves."""
    argv = ["ip", "-j", "addr", "show", "up"]
    try:
        output = subprocess.run(argv, check=True, capture_output=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    links = json.loads(output or b"[]")
    entries = [entry for link in links for entry in link.get("addr_info", ())]
    global_entries = [entry for entry in entries if entry.get("scope") == "global"]
    addresses = [entry["local"] for entry in global_entries if entry.get("local")]
    if name is None:
        return addresses
    resolved = set()
    with contextlib.suppress(OSError):
        resolved = {info[4][0] for info in socket.getaddrinfo(str(name), None)}
    return [address for address in addresses if address in resolved]
