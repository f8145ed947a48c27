"""The user's arguments for the addresses and DHCP of a network."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, mapping, nested
from saltvirt.xml.network.dhcp import DhcpHost, DhcpRange
from saltvirt.xml.network.ip import Ip

if TYPE_CHECKING:
    from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

    from saltvirt.spec.base import Parser


def ip_text(value: Any, argument: str) -> str:
    """An IP address as text."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError as exc:
        raise InvalidInput(f"{argument} {value!r} is not an IP address") from exc


@dataclass
class DhcpRangeSpec(Spec):
    """A range of dynamic addresses; the lease time in seconds."""

    start: str = key(ip_text, xml=DhcpRange.start)
    end: str = key(ip_text, xml=DhcpRange.end)
    lease_s: int | None = key(values.count, name="lease")

    def check(self, argument: str) -> None:
        if not (self.start and self.end):
            raise InvalidInput(f"{argument}: start and end are needed")
        start, end = ipaddress.ip_address(self.start), ipaddress.ip_address(self.end)
        if start.version != end.version:
            raise InvalidInput(f"{argument}: start and end are of two IP versions")
        if int(start) > int(end):
            raise InvalidInput(f"{argument}: start is behind end")


@dataclass
class DhcpHostSpec(Spec):
    """A fixed address."""

    NONE_REMOVES = False

    mac: str | None = key(values.mac, xml=DhcpHost.mac)
    id: str | None = key(values.text, xml=DhcpHost.id)
    name: str | None = key(values.word, xml=DhcpHost.name)
    ip: str = key(ip_text, xml=DhcpHost.ip, required=True)

    def check(self, argument: str) -> None:
        if not (self.name or self.mac or self.id):
            raise InvalidInput(f"{argument}: one of name, mac and id is needed")


def _hosts(value: Any, argument: str) -> list[DhcpHostSpec]:
    """A list, or a dictionary by address as in Salt 3007's template."""
    if isinstance(value, dict):
        value = [
            {**mapping(host or {}, f"{argument}:{ip}"), "ip": ip} for ip, host in value.items()
        ]
    return values.list_of(nested(DhcpHostSpec))(value, argument)


@dataclass
class BootpSpec(Spec):
    """The boot file of machines that boot from the network."""

    file: str | None = key(values.text, xml=Ip.bootp_file, required=True)
    server: str | None = key(values.word, xml=Ip.bootp_server)


@dataclass
class IpSpec(Spec):
    """``ipv4_config`` or ``ipv6_config``: ``cidr``, or address with netmask or prefix."""

    NONE_REMOVES = False

    cidr: str | None = key(values.text)
    address: str | None = key(ip_text)
    netmask: str | None = key(ip_text)
    prefix: int | None = key(values.number(1, 128))
    dhcp_ranges: list[DhcpRangeSpec] | None = key(values.list_of(nested(DhcpRangeSpec)))
    hosts: list[DhcpHostSpec] | None = key(_hosts)
    bootp: BootpSpec | None = key(nested(BootpSpec), xml=BootpSpec)
    tftp: str | None = key(values.path, xml=Ip.tftp)

    @classmethod
    def family(cls, version: int) -> Parser[IpSpec]:
        """A parser for IP version 4 or 6."""

        def parse(value: Any, argument: str) -> IpSpec:
            ip_spec = cls.parse(value, argument)
            interface = ip_spec.interface(argument)
            if interface.version != version:
                raise InvalidInput(f"{argument}: {interface} is not IPv{version}")
            ip_spec._inside(interface.network, argument)
            return ip_spec

        return parse

    def interface(self, argument: str = "ip") -> IPv4Interface | IPv6Interface:
        """The host's address in its network; for a network address, the first address of the
        network."""
        text = self.cidr or self.address
        if not text:
            raise InvalidInput(f"{argument}: cidr is missing, such as 192.168.124.0/24")
        mask = self.prefix if self.prefix is not None else self.netmask
        if mask is not None:
            text = f"{text.split('/')[0]}/{mask}"
        try:
            result = ipaddress.ip_interface(text)
        except ValueError as exc:
            raise InvalidInput(f"{argument}: {text!r} is not an address with its network") from exc
        if result.ip == result.network.network_address and result.network.num_addresses > 2:
            first = result.network.network_address + 1
            result = ipaddress.ip_interface(f"{first}/{result.network.prefixlen}")
        return result

    def _inside(self, network: IPv4Network | IPv6Network, argument: str) -> None:
        for item in self.dhcp_ranges or ():
            for end in (item.start, item.end):
                if ipaddress.ip_address(end) not in network:
                    raise InvalidInput(f"{argument}: {end} of dhcp_ranges is not in {network}")
        for host in self.hosts or ():
            if ipaddress.ip_address(host.ip) not in network:
                raise InvalidInput(f"{argument}: the host {host.ip} is not in {network}")
