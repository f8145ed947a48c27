"""A virtual network of a host."""

from __future__ import annotations

from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.kinds import INT, ON_OFF, YES_NO
from saltvirt.xml.network.bandwidth import Bandwidth
from saltvirt.xml.network.dns import Dns
from saltvirt.xml.network.forward import Forward
from saltvirt.xml.network.ip import Ip, Route
from saltvirt.xml.network.portgroup import PortGroup
from saltvirt.xml.network.virtualport import VirtualPort
from saltvirt.xml.network.vlan import Vlan


class Network(Element):
    """``<network>``."""

    TAG = "network"

    connections = Prop("@connections", INT)
    name = Prop("name")
    uuid = Prop("uuid")
    title = Prop("title")
    forward = Child("forward", Forward)
    bridge = Prop("bridge/@name")
    stp = Prop("bridge/@stp", ON_OFF)
    delay_s = Prop("bridge/@delay", INT)
    zone = Prop("bridge/@zone")
    mtu = Prop("mtu/@size", INT)
    mac = Prop("mac/@address")
    domain_name = Prop("domain/@name")
    domain_local_only = Prop("domain/@localOnly", YES_NO)
    dns = Child("dns", Dns)
    bandwidth = Child("bandwidth", Bandwidth)
    vlan = Child("vlan", Vlan)
    isolated_ports = Prop("port/@isolated", YES_NO)
    virtualport = Child("virtualport", VirtualPort)
    portgroups = Children("portgroup", PortGroup)
    ips = Children("ip", Ip)
    routes = Children("route", Route)

    @property
    def mode(self) -> str | None:
        """The forward mode; None for an isolated network."""
        return (self.forward.mode or "nat") if self.forward else None
