"""Host devices that are assigned to the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design import disks
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.xml.devices.hostdev import HostDevice
from saltvirt.xml.tree import child, parse

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.spec.hostdev import HostDeviceSpec
    from saltvirt.xml.domain.domain import Domain


def build(spec: HostDeviceSpec, context: Context) -> HostDevice:
    """Build a HostDevice for a HostDeviceSpec."""
    if not context.has("hostdev"):
        raise Unsupported("host_devices: this host's guests can have none")
    if not spec.resolved:
        xml = context.inputs.node_devices.get(spec.name or "")
        if xml is None:
            raise InvalidInput(f"host_devices: the host has no device {spec.name!r}")
        return of_node_device(xml, spec.name)
    if spec.type == "usb":
        return _usb(spec.vendor or 0, spec.product or 0)
    if spec.type == "scsi":
        device = HostDevice(mode="subsystem", type="scsi", adapter=spec.adapter)
        address = device.source_address
        address.bus, address.target, address.unit = spec.bus, spec.target, spec.unit
        return device
    if spec.type == "mdev":
        device = HostDevice(mode="subsystem", type="mdev", model="vfio-pci")
        device.mdev_uuid = spec.uuid
        return device
    device = _pci(spec.domain or 0, spec.bus or 0, spec.slot or 0, spec.function or 0)
    device.rom_file = spec.rom_file
    return device


def _pci(domain: int, bus: int, slot: int, function: int) -> HostDevice:
    device = HostDevice(mode="subsystem", type="pci", managed=True)
    device.source_address.set_pci(domain, bus, slot, function)
    return device


def _usb(vendor: int, product: int) -> HostDevice:
    return HostDevice(
        mode="subsystem", type="usb", vendor=f"0x{vendor:04x}", product=f"0x{product:04x}"
    )


def of_node_device(xml: str, name: str | None) -> HostDevice:
    """A HostDevice from libvirt's XML of a node device (PCI or USB).

    Raises InvalidInput for a device that cannot be assigned to a guest.
    """
    root = parse(xml)
    for capability in root.findall("capability"):
        kind = capability.get("type")
        if kind == "pci":
            keys = ("domain", "bus", "slot", "function")
            return _pci(*(int(child(capability, n).text or "", 0) for n in keys))
        if kind == "usb_device":
            ids = (int(child(capability, n).get("id", ""), 16) for n in ("vendor", "product"))
            return _usb(*ids)
    raise InvalidInput(f"host_devices: {name!r} is neither a PCI nor a USB device")


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's host_devices to a domain; a given list is complete."""
    if spec.host_devices is None:
        return
    desired = [build(item, context) for item in spec.host_devices]
    keys = {device.source_key() for device in desired}
    existing = set()
    for device in domain.host_devices:
        if device.source_key() not in keys:
            domain.host_devices.remove(device)
        existing.add(device.source_key())
    for device in desired:
        if device.source_key() not in existing:
            domain.host_devices.append(device)
    disks.controllers(domain, context)
