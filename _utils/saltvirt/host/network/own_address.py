"""The addresses of this host."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess


def own(name: str | None = None) -> list[str]:
    """All addresses of this host that others can reach; with a name or address, those of them
    that it means."""
    argv = ["ip", "-j", "addr", "show", "up"]
    try:
        output = subprocess.run(argv, check=True, capture_output=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    here = [
        entry["local"]
        for link in json.loads(output or b"[]")
        for entry in link.get("addr_info", ())
        if entry.get("scope") == "global" and entry.get("local")
    ]
    if name is None:
        return here
    means = set()
    with contextlib.suppress(OSError):
        means = {found[4][0] for found in socket.getaddrinfo(str(name), None)}
    return [address for address in here if address in means]
