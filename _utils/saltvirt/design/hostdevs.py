"""Devices of the host that the guest gets."""

from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.xml.hostdev import HostDevice
from saltvirt.xml.tree import parse as parse_xml


def build(spec, context):
    """A HostDevice for a HostDeviceSpec."""
    if not context.has("hostdev"):
        raise Unsupported("host_devices: this host's guests can have none")
    if not spec.resolved:
        xml = context.given.node_devices.get(spec.name)
        if xml is None:
            raise InvalidInput(f"host_devices: the host has no device {spec.name!r}")
        return of_node_device(xml, spec.name)
    if spec.type == "usb":
        return _usb(spec.vendor, spec.product)
    if spec.type == "mdev":
        device = HostDevice(mode="subsystem", type="mdev", model="vfio-pci")
        device.mdev_uuid = spec.uuid
        return device
    device = _pci(spec.domain or 0, spec.bus, spec.slot, spec.function)
    device.rom_file = spec.rom_file
    return device


def _pci(domain, bus, slot, function):
    device = HostDevice(mode="subsystem", type="pci", managed=True)
    device.source_address.set_pci(domain, bus, slot, function)
    return device


def _usb(vendor, product):
    return HostDevice(
        mode="subsystem", type="usb", vendor=f"0x{vendor:04x}", product=f"0x{product:04x}"
    )


def of_node_device(xml, name):
    """A HostDevice from libvirt's XML of a node device (PCI or USB).

    Raises InvalidInput for a device that cannot be given to a guest.
    """
    root = parse_xml(xml)
    for capability in root.findall("capability"):
        kind = capability.get("type")
        if kind == "pci":
            numbers = [int(capability.findtext(n), 0) for n in ("domain", "bus", "slot")]
            return _pci(*numbers, int(capability.findtext("function"), 0))
        if kind == "usb_device":
            vendor, product = (capability.find(n).get("id") for n in ("vendor", "product"))
            return _usb(int(vendor, 16), int(product, 16))
    raise InvalidInput(f"host_devices: {name!r} is neither a PCI nor a USB device")


def apply(spec, domain, context):
    """Lays a GuestSpec's host_devices onto a domain: a list given is all there is."""
    if spec.host_devices is None:
        return
    wanted = [build(item, context) for item in spec.host_devices]
    keys = {device.source_key() for device in wanted}
    there = set()
    for device in list(domain.host_devices):
        if device.source_key() not in keys:
            _remove(domain, device.source_key())
        there.add(device.source_key())
    for device in wanted:
        if device.source_key() not in there:
            domain.host_devices.append(device)


def _remove(domain, key):
    for device in list(domain.host_devices):
        if device.source_key() == key:
            domain.host_devices.remove(device)
            return
