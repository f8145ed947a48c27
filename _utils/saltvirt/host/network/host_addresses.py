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
    addresses = [
        entry["local"]
        for link in json.loads(output or b"[]")
        for entry in link.get("addr_info", ())
        if entry.get("scope") == "global" and entry.get("local")
    ]
    if name is None:
        return addresses
    resolved = set()
    with contextlib.suppress(OSError):
        resolved = {info[4][0] for info in socket.getaddrinfo(str(name), None)}
    return [address for address in addresses if address in resolved]
