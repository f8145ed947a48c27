"""A network interface of a guest."""

from __future__ import annotations

from saltvirt.xml.base import Child, Prop
from saltvirt.xml.device import Device
from saltvirt.xml.devices.address import PciAddress
from saltvirt.xml.kinds import INT, YES_NO
from saltvirt.xml.network.bandwidth import Bandwidth
from saltvirt.xml.network.virtualport import VirtualPort
from saltvirt.xml.network.vlan import Vlan


class Interface(Device):
    """``<interface>``."""

    TAG = "interface"

    type = Prop("@type")
    device_managed = Prop("@managed", YES_NO)
    mac = Prop("mac/@address")
    network = Prop("source/@network")
    portgroup = Prop("source/@portgroup")
    bridge = Prop("source/@bridge")
    dev = Prop("source/@dev")
    mode = Prop("source/@mode")
    device_address = Child("source/address", PciAddress)
    vlan = Child("vlan", Vlan)
    virtualport = Child("virtualport", VirtualPort)
    target = Prop("target/@dev")
    managed = Prop("target/@managed", YES_NO)
    model = Prop("model/@type")
    driver_name = Prop("driver/@name")
    queues = Prop("driver/@queues", INT)
    bandwidth = Child("bandwidth", Bandwidth)
    link_state = Prop("link/@state")
    mtu = Prop("mtu/@size", INT)
    filter = Prop("filterref/@filter")
    isolated_port = Prop("port/@isolated", YES_NO)

    @property
    def source(self) -> str | None:
        """The name of the network, bridge or host device that it is connected to, or None."""
        if self.type == "hostdev":
            return self.device_address.pci_name()
        by_type = {"network": self.network, "bridge": self.bridge, "direct": self.dev}
        return by_type.get(self.type or "", self.network or self.bridge or self.dev)
