"""The host's address on a network, with its DHCP server."""

from __future__ import annotations

import ipaddress

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO
from saltvirt.xml.network.dhcp import DhcpHost, DhcpRange


class Ip(Element):
    """``<ip>``."""

    TAG = "ip"

    family = Prop("@family")
    address = Prop("@address")
    netmask = Prop("@netmask")
    prefix = Prop("@prefix", INT)
    local_ptr = Prop("@localPtr", YES_NO)
    tftp = Prop("tftp/@root")
    ranges = Children("dhcp/range", DhcpRange)
    hosts = Children("dhcp/host", DhcpHost)
    bootp_file = Prop("dhcp/bootp/@file")
    bootp_server = Prop("dhcp/bootp/@server")

    def interface(self) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
        """Address with prefix or netmask, as an interface of ipaddress."""
        mask = self.prefix if self.prefix is not None else self.netmask
        address = self.address or ""
        return ipaddress.ip_interface(address if mask is None else f"{address}/{mask}")


class Route(Element):
    """``<route>``."""

    TAG = "route"

    family = Prop("@family")
    address = Prop("@address")
    netmask = Prop("@netmask")
    prefix = Prop("@prefix", INT)
    gateway = Prop("@gateway")
    metric = Prop("@metric", INT)
