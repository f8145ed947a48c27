"""Devices of the host for passthrough, and its network cards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from saltvirt.host.connection import libvirt, translate

# root hubs, which are not devices for guests
_USB_ROOTS = {("0x1d6b", "0x0001"), ("0x1d6b", "0x0002"), ("0x1d6b", "0x0003")}


def devices(conn: libvirt.virConnect) -> list[dict[str, Any]]:
    """Return PCI and USB devices and network cards; see ``virt.node_devices``.

    A device that cannot be read gets an ``error`` entry; an unplugged one is omitted.
    """
    flags = (
        libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_USB_DEV
        | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
    )
    device_facts = (_read(device) for device in conn.listAllDevices(flags))
    return [device for device in device_facts if device]


def _read(device: libvirt.virNodeDevice) -> dict[str, Any] | None:
    try:
        return parse(ElementTree.fromstring(device.XMLDesc(0)))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE:
            return None
        return {"name": device.name(), "error": str(translate(exc))}


def parse(device: Element) -> dict[str, Any] | None:
    """Return a dict for a ``<device>`` element; None if a guest cannot use it."""
    capabilities = device.findall("capability")
    kinds = [capability.get("type", "") for capability in capabilities]
    for kind, capability in zip(kinds, capabilities, strict=True):
        if kind in _PARSERS:
            facts = _PARSERS[kind](device, capability)
            return {"caps": " ".join(kinds), **facts} if facts else None
    return None


def _net(device: Element, capability: Element) -> dict[str, Any] | None:
    parent = device.findtext("parent")
    if parent in (None, "computer"):  # lo, bridges and taps are not hardware
        return None
    link = capability.find("link")
    return {
        "name": capability.findtext("interface"),
        "address": capability.findtext("address"),
        "device name": parent,
        "state": link.get("state") if link is not None else None,
    }


def _product(device: Element, capability: Element) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": device.findtext("name")}
    for tag in ("vendor", "product"):
        element = capability.find(tag)
        if element is not None:
            facts[f"{tag}_id"] = (element.get("id") or "").lower()
            if element.text:
                facts[tag] = element.text
    return facts


def _pci(device: Element, capability: Element) -> dict[str, Any] | None:
    if capability.find("capability[@type='pci-bridge']") is not None:
        return None
    facts = _product(device, capability)
    numbers = [int(capability.findtext(tag, "0")) for tag in ("domain", "bus", "slot")]
    facts["address"] = "{:04x}:{:02x}:{:02x}".format(*numbers) + (
        f".{capability.findtext('function')}"
    )
    if capability.findtext("class"):
        facts["PCI class"] = capability.findtext("class")
    virtual = capability.findall("capability[@type='virt_functions']/address")
    if virtual:
        facts["virtual functions"] = [_pci_address(address) for address in virtual]
    physical = capability.find("capability[@type='phys_function']/address")
    if physical is not None:
        facts["physical function"] = _pci_address(physical)
    return facts


def _pci_address(address: Element) -> str:
    part = {key: int(value, 16) for key, value in address.attrib.items() if key != "type"}
    return f"{part['domain']:04x}:{part['bus']:02x}:{part['slot']:02x}.{part['function']:x}"


def _usb(device: Element, capability: Element) -> dict[str, Any] | None:
    facts = _product(device, capability)
    if (facts.get("vendor_id"), facts.get("product_id")) in _USB_ROOTS:
        return None
    bus, number = (int(capability.findtext(tag, "0")) for tag in ("bus", "device"))
    return {**facts, "address": f"{bus:03}:{number:03}"}


_PARSERS: dict[str, Callable[[Element, Element], dict[str, Any] | None]] = {
    "net": _net,
    "pci": _pci,
    "usb_device": _usb,
}
