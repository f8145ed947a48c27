"""A class of connections to a network."""

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.kinds import YES_NO
from saltvirt.xml.network.bandwidth import Bandwidth
from saltvirt.xml.network.virtualport import VirtualPort
from saltvirt.xml.network.vlan import Vlan


class PortGroup(Element):
    """``<portgroup>``."""

    TAG = "portgroup"

    name = Prop("@name")
    default = Prop("@default", YES_NO)
    vlan = Child("vlan", Vlan)
    virtualport = Child("virtualport", VirtualPort)
    bandwidth = Child("bandwidth", Bandwidth)
