"""The address of a device in the guest, or of a host device."""

from __future__ import annotations

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT


class Address(Element):
    """``<address>``: which attributes count depends on ``type``."""

    TAG = "address"

    type = Prop("@type")
    domain = Prop("@domain", INT)
    bus = Prop("@bus", INT)
    slot = Prop("@slot", INT)
    function = Prop("@function", INT)
    multifunction = Prop("@multifunction")
    device = Prop("@device", INT)
    controller = Prop("@controller", INT)
    target = Prop("@target", INT)
    unit = Prop("@unit", INT)
    port = Prop("@port")


class PciAddress(Address):
    """An address whose numbers are written as libvirt writes PCI ones: in hex."""

    def set_pci(self, domain: int, bus: int, slot: int, function: int) -> None:
        """Sets all four numbers, as ``0x0000``, ``0x03``, ``0x00``, ``0x0``."""
        self.domain = f"0x{domain:04x}"
        self.bus = f"0x{bus:02x}"
        self.slot = f"0x{slot:02x}"
        self.function = f"0x{function:x}"

    def pci_name(self) -> str | None:
        """The PCI address as text, such as ``0000:03:00.0``; None if there is none."""
        if not self:
            return None
        numbers = self.domain or 0, self.bus or 0, self.slot or 0, self.function or 0
        return "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers)

    def set_pci_name(self, name: str) -> None:
        """Set the PCI address from text, as :meth:`pci_name` returns it."""
        domain, bus, rest = name.split(":")
        slot, function = rest.split(".")
        self.type = "pci"
        self.set_pci(*(int(part, 16) for part in (domain, bus, slot, function)))
