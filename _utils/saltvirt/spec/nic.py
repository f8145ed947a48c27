"""The user's arguments for a network interface."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import REMOVE, Spec, key, nested
from saltvirt.spec.hostdev import HostDeviceSpec
from saltvirt.spec.switch import VirtualPortSpec, VlanSpec
from saltvirt.xml.devices.interface import Interface

TYPES = ("bridge", "network", "direct", "user", "ethernet", "hostdev")


def _target(value: Any, argument: str) -> str:
    """The interface's name on the host; libvirt reserves some names and drops them."""
    name = values.word(value, argument)
    if re.fullmatch(r"(vnet|vif|macvtap|macvlan)\d+", name) or len(name) > 15:
        raise InvalidInput(
            f"{argument} {value!r}: at most 15 characters, and none of libvirt's own"
        )
    return name


def _address(value: Any, argument: str) -> str:
    """An IP address, as text."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError as exc:
        raise InvalidInput(f"{argument} {value!r} is not an IP address") from exc


def _cidr(value: Any, argument: str) -> str:
    """An IP address with the length of its network's prefix, as text."""
    try:
        interface = ipaddress.ip_interface(str(value))
    except ValueError as exc:
        raise InvalidInput(f"{argument} {value!r} is not an address such as 192.0.2.7/24") from exc
    if "/" not in str(value):
        raise InvalidInput(f"{argument} {value!r}: give the prefix too, as in {value}/24")
    return str(interface)


def detach(value: Any, argument: str) -> tuple[str, ...] | None:
    """MACs or names of the interfaces to detach; None: not given."""
    if value is None:
        return None
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(
        values.mac(item, argument) if str(item).count(":") else values.word(item, argument)
        for item in items
    )


@dataclass
class LimitSpec(Spec):
    """Limits of one direction: average and peak in KiB/s, burst in KiB, floor in KiB/s."""

    average: int | None = key(values.count)
    peak: int | None = key(values.count)
    burst: int | None = key(values.count)
    floor: int | None = key(values.count)


@dataclass
class BandwidthSpec(Spec):
    """Limits of both directions."""

    inbound: LimitSpec | None = key(nested(LimitSpec))
    outbound: LimitSpec | None = key(nested(LimitSpec))


@dataclass
class NicSpec(Spec):
    """One item of ``interfaces`` or of a nic profile."""

    NONE_LEAVES = frozenset(
        ("name", "type", "source", "mac", "model", "mode", "addresses", "gateways", "nameservers",
         "search")
    )  # fmt: skip

    name: str | None = key(values.word)
    type: str | None = key(values.choice(*TYPES))
    source: str | None = key(values.text)
    mac: str | None = key(values.mac, xml=Interface.mac)
    model: str | None = key(values.word, xml=Interface.model)
    mode: str | None = key(values.choice("bridge", "vepa", "private", "passthrough"))
    portgroup: str | None = key(values.text, xml=Interface.portgroup)
    vlan: VlanSpec | None = key(VlanSpec.parse_any)
    virtualport: VirtualPortSpec | None = key(VirtualPortSpec.parse_any)
    bandwidth: BandwidthSpec | None = key(nested(BandwidthSpec))
    mtu: int | None = key(values.number(68, 65535), xml=Interface.mtu)
    queues: int | None = key(values.count, xml=Interface.queues)
    target: str | None = key(_target, xml=Interface.target)
    link: bool | None = key(values.boolean)
    filter: str | None = key(values.text, xml=Interface.filter)
    isolated: bool | None = key(values.boolean, xml=Interface.isolated_port)
    boot_order: int | None = key(values.count, xml=Interface.boot_order)
    addresses: list[str] | None = key(values.list_of(_cidr))
    gateways: list[str] | None = key(values.list_of(_address))
    nameservers: list[str] | None = key(values.list_of(_address))
    search: list[str] | None = key(values.list_of(values.text))

    def check(self, argument: str) -> None:
        if self.mode and self.type != "direct":
            raise InvalidInput(f"{argument}: mode is for interfaces of type direct")
        if self.type == "hostdev":
            self._check_device(argument)
        if self.isolated and self.type not in (None, "bridge", "network"):
            raise InvalidInput(f"{argument}: isolated is for interfaces of a bridge or network")
        if self.type in ("bridge", "network", "direct") and not self.source:
            raise InvalidInput(f"{argument}: source is missing: the name of the {self.type}")

    def _check_device(self, argument: str) -> None:
        """Check an interface that is a virtual function of the host's network card."""
        if not self.source:
            raise InvalidInput(f"{argument}: hostdev is missing: the PCI address of the device")
        device = HostDeviceSpec.parse_any(self.source, f"{argument}:source")
        if device.type != "pci":
            raise InvalidInput(
                f"{argument}: source {self.source!r} is not a PCI address such as 0000:03:10.1"
            )
        numbers = device.domain, device.bus, device.slot, device.function
        self.source = "{:04x}:{:02x}:{:02x}.{:x}".format(*(number or 0 for number in numbers))
        for word in ("bandwidth", "mtu", "queues", "target", "filter", "link", "portgroup"):
            if getattr(self, word) not in (None, REMOVE):
                raise InvalidInput(f"{argument}: {word} is not for a device of the host")
