"""Base of all devices."""

from saltvirt.xml.base import Child, Element, Prop
from saltvirt.xml.devices.address import Address
from saltvirt.xml.kinds import INT


class Device(Element):
    """A child of ``<devices>``."""

    alias = Prop("alias/@name")
    boot_order = Prop("boot/@order", INT)
    address = Child("address", Address)
