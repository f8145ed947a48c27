"""What the user asked for of a network's address and DHCP."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Part, key, mapping, part

if TYPE_CHECKING:
    from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

    from saltvirt.spec.base import Parser


def ip_text(value: Any, what: str) -> str:
    """An IP address as text."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError as exc:
        raise InvalidInput(f"{what} {value!r} is not an IP address") from exc


@dataclass
class DhcpRangeSpec(Part):
    """Addresses to give out; the lease's time in seconds."""

    start: str = key(ip_text)
    end: str = key(ip_text)
    lease_s: int | None = key(values.count, name="lease")

    def check(self, what: str) -> None:
        if not (self.start and self.end):
            raise InvalidInput(f"{what}: start and end are needed")
        start, end = ipaddress.ip_address(self.start), ipaddress.ip_address(self.end)
        if start.version != end.version:
            raise InvalidInput(f"{what}: start and end are of two IP versions")
        if int(start) > int(end):
            raise InvalidInput(f"{what}: start is behind end")


@dataclass
class DhcpHostSpec(Part):
    """A fixed address."""

    NONE_REMOVES = False

    ip: str = key(ip_text)
    name: str | None = key(values.word)
    mac: str | None = key(values.mac)
    id: str | None = key(values.text)

    def check(self, what: str) -> None:
        if not self.ip:
            raise InvalidInput(f"{what}: ip is missing")
        if not (self.name or self.mac or self.id):
            raise InvalidInput(f"{what}: one of name, mac and id is needed")


def _hosts(value: Any, what: str) -> list[DhcpHostSpec]:
    """A list, or a dictionary by address as Salt 3007's template read it."""
    if isinstance(value, dict):
        value = [{**mapping(host or {}, f"{what}:{ip}"), "ip": ip} for ip, host in value.items()]
    return values.list_of(part(DhcpHostSpec))(value, what)


@dataclass
class BootpSpec(Part):
    """What machines that boot from the network load."""

    file: str | None = key(values.text)
    server: str | None = key(values.word)

    def check(self, what: str) -> None:
        if not self.file:
            raise InvalidInput(f"{what}: file is missing")


@dataclass
class IpSpec(Part):
    """``ipv4_config`` or ``ipv6_config``: ``cidr``, or address with netmask or prefix."""

    NONE_REMOVES = False

    cidr: str | None = key(values.text)
    address: str | None = key(ip_text)
    netmask: str | None = key(ip_text)
    prefix: int | None = key(values.number(1, 128))
    dhcp_ranges: list[DhcpRangeSpec] | None = key(values.list_of(part(DhcpRangeSpec)))
    hosts: list[DhcpHostSpec] | None = key(_hosts)
    bootp: BootpSpec | None = key(part(BootpSpec))
    tftp: str | None = key(values.path)

    @classmethod
    def family(cls, version: int) -> Parser[IpSpec]:
        """A parser for IP version 4 or 6."""

        def parse(value: Any, what: str) -> IpSpec:
            found = cls.parse(value, what)
            interface = found.interface(what)
            if interface.version != version:
                raise InvalidInput(f"{what}: {interface} is not IPv{version}")
            found._inside(interface.network, what)
            return found

        return parse

    def interface(self, what: str = "ip") -> IPv4Interface | IPv6Interface:
        """The host's address in its network; a bare network gives its first address."""
        text = self.cidr or self.address
        if not text:
            raise InvalidInput(f"{what}: cidr is missing, such as 192.168.124.0/24")
        mask = self.prefix if self.prefix is not None else self.netmask
        if mask is not None:
            text = f"{text.split('/')[0]}/{mask}"
        try:
            found = ipaddress.ip_interface(text)
        except ValueError as exc:
            raise InvalidInput(f"{what}: {text!r} is not an address with its network") from exc
        if found.ip == found.network.network_address and found.network.num_addresses > 2:
            first = found.network.network_address + 1
            found = ipaddress.ip_interface(f"{first}/{found.network.prefixlen}")
        return found

    def _inside(self, network: IPv4Network | IPv6Network, what: str) -> None:
        for item in self.dhcp_ranges or ():
            for end in (item.start, item.end):
                if ipaddress.ip_address(end) not in network:
                    raise InvalidInput(f"{what}: {end} of dhcp_ranges is not in {network}")
        for host in self.hosts or ():
            if ipaddress.ip_address(host.ip) not in network:
                raise InvalidInput(f"{what}: the host {host.ip} is not in {network}")
