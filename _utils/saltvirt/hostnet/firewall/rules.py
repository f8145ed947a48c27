"""What every firewall must do: which ports are open to whom, and which to nobody."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from saltvirt.errors import InvalidInput

# the first port of a range, and the last
Pair = tuple[int, int]


class Run(Protocol):
    """Calls a program: what it printed, "" where it failed or is not here; with ``must`` that
    raises OperationFailed."""

    def __call__(self, argv: Sequence[str], text: str | None = None, must: bool = False) -> str: ...


NAME = "salt-virt"
_PORTS = re.compile(r"(\d{1,5})(?:[-:](\d{1,5}))?")


@dataclass(frozen=True)
class Rules:
    """open: (first, last) ports for ``hosts`` alone; shut: (first, last) ports for nobody but
    this machine itself. hosts: addresses or networks of the other hypervisors, normalized. agent:
    the port of high availability's agent, which is for ``masters``, too."""

    open: tuple[Pair, ...]
    shut: tuple[Pair, ...]
    hosts: tuple[str, ...]
    agent: tuple[Pair, ...] = ()
    masters: tuple[str, ...] = ()

    def accepted(self) -> list[tuple[tuple[Pair, ...], tuple[str, ...]]]:
        """(ports, to whom they are open)."""
        all_hosts = dict.fromkeys((*self.hosts, *self.masters))
        pairs = [(self.open, self.hosts), (self.agent, tuple(all_hosts))]
        return [pair for pair in pairs if pair[0]]

    @property
    def closed(self) -> tuple[Pair, ...]:
        """Those that are for nobody else."""
        return (*self.open, *self.agent, *self.shut)


def of_family(hosts: Iterable[str], version: int) -> list[str]:
    """The hosts with addresses of IP version 4 or 6."""
    return [host for host in hosts if ipaddress.ip_network(host).version == version]


def ports(text: object) -> Pair:
    """(first, last) of ``16514`` or ``49152-49215``; InvalidInput for anything else."""
    match = _PORTS.fullmatch(str(text))
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last < 65536:
        raise InvalidInput(f"{text!r} is no port and no range of ports such as 49152-49215")
    return first, last


def address(text: object) -> str:
    """An address or a network as it is written in rules; InvalidInput when it is none."""
    try:
        network = ipaddress.ip_network(str(text), strict=False)
    except ValueError as exc:
        raise InvalidInput(f"{text!r} is no address and no network") from exc
    is_single = network.prefixlen == network.max_prefixlen
    return str(network.network_address if is_single else network)


def format_ports(pair: Pair, sign: str) -> str:
    """A pair of ports as one word."""
    first, last = pair
    return str(first) if first == last else f"{first}{sign}{last}"
