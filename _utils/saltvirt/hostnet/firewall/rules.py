"""The rules that every firewall implements: which ports are open to which hosts, and which are
closed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from saltvirt.errors import InvalidInput

# (first port of a range, last port)
Pair = tuple[int, int]


class Run(Protocol):
    """Runs a program and returns its output, "" if it fails or is missing; with ``must``, raises
    OperationFailed instead."""

    def __call__(self, argv: Sequence[str], text: str | None = None, must: bool = False) -> str: ...


NAME = "salt-virt"
_PORTS = re.compile(r"(\d{1,5})(?:[-:](\d{1,5}))?")


@dataclass(frozen=True)
class Rules:
    """open: (first, last) ports for ``hosts`` only; shut: (first, last) closed ports, which only
    this machine can use. hosts: normalized addresses or networks of the other hypervisors. agent:
    the port of high availability's agent, which is also open to ``masters``."""

    open: tuple[Pair, ...]
    shut: tuple[Pair, ...]
    hosts: tuple[str, ...]
    agent: tuple[Pair, ...] = ()
    masters: tuple[str, ...] = ()

    def accepted(self) -> list[tuple[tuple[Pair, ...], tuple[str, ...]]]:
        """(ports, hosts to which they are open)."""
        all_hosts = dict.fromkeys((*self.hosts, *self.masters))
        pairs = [(self.open, self.hosts), (self.agent, tuple(all_hosts))]
        return [pair for pair in pairs if pair[0]]

    @property
    def closed(self) -> tuple[Pair, ...]:
        """The ports that are closed to all other hosts."""
        return (*self.open, *self.agent, *self.shut)


def of_family(hosts: Iterable[str], version: int) -> list[str]:
    """The hosts with addresses of IP version 4 or 6."""
    return [host for host in hosts if ipaddress.ip_network(host).version == version]


def ports(text: object) -> Pair:
    """(first, last) of ``16514`` or ``49152-49215``. Raises InvalidInput."""
    match = _PORTS.fullmatch(str(text))
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last < 65536:
        raise InvalidInput(f"{text!r} is not a port or a range of ports such as 49152-49215")
    return first, last


def address(text: object) -> str:
    """An address or a network in its normal form. Raises InvalidInput."""
    try:
        network = ipaddress.ip_network(str(text), strict=False)
    except ValueError as exc:
        raise InvalidInput(f"{text!r} is not an address or a network") from exc
    is_single = network.prefixlen == network.max_prefixlen
    return str(network.network_address if is_single else network)


def format_ports(pair: Pair, sign: str) -> str:
    """A range of ports as text."""
    first, last = pair
    return str(first) if first == last else f"{first}{sign}{last}"
