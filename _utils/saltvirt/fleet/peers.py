"""Count the connections to the master's publish port by address.

A minion has one connection, through which it receives all jobs. If every connection belongs to a
known minion at its known address, an unseen host has no connection, and the master need not wait
for it. An additional connection may belong to a host behind NAT, or to a host with a new address.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Any

import salt.utils.minions
import salt.utils.network

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"
LOCAL = "local"


def _address(text: str) -> str:
    """Return the address in /proc's hexadecimal notation (little-endian); LOCAL for loopback."""
    groups = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(groups))
    canonical = getattr(address, "ipv4_mapped", None) or address
    return LOCAL if canonical.is_loopback else str(canonical)


def connections(port: int, tables: Sequence[str] = _TABLES) -> Counter[str] | None:
    """Count the addresses that are connected to the port; None if the tables cannot be read."""
    counts: Counter[str] = Counter()
    try:
        for table in tables:
            with open(table, encoding="ascii") as file:
                lines = [line.split() for line in file][1:]
            for _, local, remote, state, *_ in lines:
                if state == _ESTABLISHED and int(local.rsplit(":", 1)[1], 16) == port:
                    counts[_address(remote.rsplit(":", 1)[0])] += 1
    except (OSError, ValueError):
        return None
    return counts


def all_known(opts: dict[str, Any], tables: Sequence[str] = _TABLES) -> bool:
    """Return whether every connection belongs to a known minion at its known address."""
    counts = connections(int(opts["publish_port"]), tables)
    if counts is None:
        return False
    pairs = salt.utils.minions.CkMinions(opts).connected_ids(show_ip=True)
    expected = Counter(address for _, address in pairs)
    local_addresses = {*salt.utils.network.ip_addrs(), *salt.utils.network.ip_addrs6()}
    expected[LOCAL] = sum(
        number for address, number in expected.items() if address in local_addresses
    )
    return all(expected[address] >= number for address, number in counts.items())
