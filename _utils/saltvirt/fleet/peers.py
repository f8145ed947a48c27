"""The connections that the master's publish port has: how many from each address.

A minion has one, and hears of a job by nothing else. So when each of them belongs to a minion
that the master knows at that address, a host that it does not see has none, and need not be
waited for. One that is too many is perhaps a host behind NAT, or whose address is a new one.
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
    """The address in /proc's hexadecimal words of this machine's byte order (all of ours are
    little-endian); LOCAL for a loopback."""
    groups = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(groups))
    canonical = getattr(address, "ipv4_mapped", None) or address
    return LOCAL if canonical.is_loopback else str(canonical)


def connections(port: int, tables: Sequence[str] = _TABLES) -> Counter[str] | None:
    """A Counter of the addresses that are connected to the port; None where that is unknown."""
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
    """Whether each connection belongs to a minion that the master knows at its address."""
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
