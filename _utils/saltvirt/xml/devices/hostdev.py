"""A host device that is assigned to the guest."""

from __future__ import annotations

from saltvirt.xml.base import Child, Prop
from saltvirt.xml.device import Device
from saltvirt.xml.devices.address import PciAddress
from saltvirt.xml.kinds import YES_NO


class HostDevice(Device):
    """``<hostdev>`` of type pci, usb, scsi or mdev."""

    TAG = "hostdev"

    mode = Prop("@mode")
    type = Prop("@type")
    managed = Prop("@managed", YES_NO)
    model = Prop("@model")
    driver = Prop("driver/@name")
    vendor = Prop("source/vendor/@id")
    product = Prop("source/product/@id")
    source_address = Child("source/address", PciAddress)
    mdev_uuid = Prop("source/address/@uuid")
    adapter = Prop("source/adapter/@name")
    rom_file = Prop("rom/@file")
    rom_bar = Prop("rom/@bar")
    startup_policy = Prop("source/@startupPolicy")

    def source_key(self) -> tuple[str | int | None, ...]:
        """The key of this host device."""
        address = self.source_address
        if self.type == "usb" and self.vendor:
            return ("usb", int(self.vendor, 16), int(self.product or "", 16))
        if self.type == "mdev":
            return ("mdev", self.mdev_uuid)
        if self.type == "scsi":
            return ("scsi", self.adapter, address.bus, address.target, address.unit)
        return (
            self.type,
            address.domain or 0,
            address.bus,
            address.device if address.slot is None else address.slot,
            address.function,
        )
