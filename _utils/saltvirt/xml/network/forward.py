"""The external connectivity of a network."""

from __future__ import annotations

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.devices.address import PciAddress
from saltvirt.xml.kinds import INT, YES_NO


class ForwardInterface(Element):
    """``<interface>``: a device of the host that guests are connected to."""

    TAG = "interface"

    dev = Prop("@dev")
    connections = Prop("@connections", INT)


class ForwardAddress(PciAddress):
    """``<address>``: a virtual function for guests."""

    connections = Prop("@connections", INT)


class Forward(Element):
    """``<forward>``; absent for an isolated network."""

    TAG = "forward"

    mode = Prop("@mode")
    dev = Prop("@dev")
    managed = Prop("@managed", YES_NO)
    nat_ipv6 = Prop("nat/@ipv6", YES_NO)
    nat_address_start = Prop("nat/address/@start")
    nat_address_end = Prop("nat/address/@end")
    nat_port_start = Prop("nat/port/@start", INT)
    nat_port_end = Prop("nat/port/@end", INT)
    physical_function = Prop("pf/@dev")
    interfaces = Children("interface", ForwardInterface)
    addresses = Children("address", ForwardAddress)
    driver = Prop("driver/@name")
