"""The user's arguments for a virtual network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested
from saltvirt.spec.hostdev import HostDeviceSpec
from saltvirt.spec.network_dns import DnsSpec
from saltvirt.spec.network_ip import IpSpec
from saltvirt.spec.nic import BandwidthSpec
from saltvirt.spec.switch import VirtualPortSpec, VlanSpec
from saltvirt.xml.network.forward import Forward
from saltvirt.xml.network.network import Network
from saltvirt.xml.network.portgroup import PortGroup

MODES = ("nat", "route", "open", "bridge", "private", "vepa", "passthrough", "hostdev")
# modes in which libvirt manages a bridge with address, DHCP and DNS
OWN_BRIDGE = (None, "nat", "route", "open")
DIRECT = ("private", "vepa", "passthrough")


def forward_mode(value: Any, argument: str) -> str | None:
    """A forward mode; ``router`` is Salt's old name of route, ``none`` means isolated."""
    text = {"router": "route", "none": None, "isolated": None}.get(str(value).lower(), value)
    return None if text is None else values.choice(*MODES)(text, argument)


def name_list(value: Any, argument: str) -> list[str]:
    """Names separated by white space, or a list of them."""
    items = value.split() if isinstance(value, str) else value
    return values.list_of(values.word)(items, argument)


def pci_addresses(value: Any, argument: str) -> list[HostDeviceSpec]:
    """PCI addresses such as 0000:04:00.1, separated by white space, or a list of them."""
    items = value.split() if isinstance(value, str) else value
    devices = values.list_of(HostDeviceSpec.parse_any)(items, argument)
    for device, item in zip(devices, items, strict=True):
        if device.type != "pci":
            raise InvalidInput(f"{argument} {item!r} is not a PCI address such as 0000:04:00.1")
    return devices


@dataclass
class BoundsSpec(Spec):
    """A range with start and end."""

    start: Any = None
    end: Any = None

    def check(self, argument: str) -> None:
        if not (self.start and self.end):
            raise InvalidInput(f"{argument}: start and end are needed")


@dataclass
class RangeSpec(BoundsSpec):
    """A range of addresses."""

    start: str = key(values.text)
    end: str = key(values.text)


@dataclass
class PortRangeSpec(BoundsSpec):
    """A range of ports."""

    start: int = key(values.port)
    end: int = key(values.port)


@dataclass
class NatSpec(Spec):
    """The external addresses and ports of the guests."""

    address: RangeSpec | None = key(nested(RangeSpec))
    port: PortRangeSpec | None = key(nested(PortRangeSpec))
    ipv6: bool | None = key(values.boolean, xml=Forward.nat_ipv6)


@dataclass
class DomainNameSpec(Spec):
    """The DNS domain of the guests."""

    name: str = key(values.word, xml=Network.domain_name, required=True)
    local_only: bool | None = key(values.boolean, name="localOnly", xml=Network.domain_local_only)


def _domain_name(value: Any, argument: str) -> DomainNameSpec:
    return DomainNameSpec.parse({"name": value} if isinstance(value, str) else value, argument)


@dataclass
class PortGroupSpec(Spec):
    """A class of connections."""

    NONE_REMOVES = False

    name: str = key(values.word, xml=PortGroup.name, required=True)
    default: bool | None = key(values.boolean, xml=PortGroup.default)
    vlan: VlanSpec | None = key(VlanSpec.parse_any)
    virtualport: VirtualPortSpec | None = key(VirtualPortSpec.parse_any)
    bandwidth: BandwidthSpec | None = key(nested(BandwidthSpec))


@dataclass
class NetworkSpec(Spec):
    """The arguments of network_define, network_update, network_defined, network_running."""

    NONE_REMOVES = False

    name: str = key(values.word)
    bridge: str | None = key(values.word, xml=Network.bridge)
    forward: str | None = key(forward_mode, xml=Forward.mode)
    vport: VirtualPortSpec | None = key(VirtualPortSpec.parse_any)
    tag: VlanSpec | None = key(VlanSpec.parse_any)
    ipv4: IpSpec | None = key(IpSpec.family(4), name="ipv4_config")
    ipv6: IpSpec | None = key(IpSpec.family(6), name="ipv6_config")
    mtu: int | None = key(values.number(68, 65535), xml=Network.mtu)
    domain: DomainNameSpec | None = key(_domain_name, xml=DomainNameSpec)
    nat: NatSpec | None = key(nested(NatSpec), xml=NatSpec)
    interfaces: list[str] | None = key(name_list)
    addresses: list[HostDeviceSpec] | None = key(pci_addresses)
    physical_function: str | None = key(values.word, xml=Forward.physical_function)
    dns: DnsSpec | None = key(nested(DnsSpec))
    dev: str | None = key(values.word, xml=Forward.dev)
    stp: bool | None = key(values.boolean, xml=Network.stp)
    delay_s: int | None = key(values.number(), name="delay", xml=Network.delay_s)
    bandwidth: BandwidthSpec | None = key(nested(BandwidthSpec))
    portgroups: list[PortGroupSpec] | None = key(values.list_of(nested(PortGroupSpec)))
    isolated_ports: bool | None = key(values.boolean, xml=Network.isolated_ports)

    def check(self, argument: str) -> None:
        if not self.name:
            raise InvalidInput("network: name is missing")
        label = f"network {self.name}"
        mode = self.forward or "isolated"
        for name, allowed in self._allowed():
            if getattr(self, name) and not allowed:
                word = {"ipv4": "ipv4_config", "ipv6": "ipv6_config"}.get(name, name)
                raise InvalidInput(f"{label}: {word} is not possible with forward mode {mode}")
        if self.forward in ("nat", "route") and not (self.ipv4 or self.ipv6):
            raise InvalidInput(f"{label}: forward mode {mode} needs ipv4_config or ipv6_config")
        if self.forward == "bridge" and bool(self.bridge) == bool(self.interfaces):
            raise InvalidInput(f"{label}: forward mode bridge needs bridge, or interfaces")
        if self.forward in ("private", "vepa") and not self.interfaces:
            raise InvalidInput(f"{label}: forward mode {mode} needs interfaces")
        if self.forward == "passthrough" and not (self.interfaces or self.physical_function):
            raise InvalidInput(f"{label}: passthrough needs interfaces or physical_function")
        if self.forward == "hostdev" and bool(self.addresses) == bool(self.physical_function):
            raise InvalidInput(f"{label}: hostdev needs either addresses or physical_function")

    def _allowed(self) -> tuple[tuple[str, bool], ...]:
        """The settings that libvirt supports in this forward mode."""
        has_own_bridge, mode = self.forward in OWN_BRIDGE, self.forward
        return (
            ("bridge", has_own_bridge or mode == "bridge"),
            ("ipv4", has_own_bridge), ("ipv6", has_own_bridge), ("dns", has_own_bridge), ("domain",
            has_own_bridge), ("mtu", has_own_bridge),
            ("stp", has_own_bridge), ("delay_s", has_own_bridge),
            ("dev", mode in ("nat", "route")),
            ("nat", mode == "nat"),
            ("interfaces", mode in ("bridge", *DIRECT)),
            ("addresses", mode == "hostdev"),
            ("physical_function", mode in ("hostdev", "passthrough")),
            ("vport", not has_own_bridge), ("tag", not has_own_bridge),
            ("bandwidth", mode not in ("hostdev", "passthrough")),
        )  # fmt: skip


def parse(name: object, **arguments: Any) -> NetworkSpec:
    """A NetworkSpec from the arguments of virt.network_define. Raises InvalidInput."""
    return NetworkSpec.parse({"name": name, **arguments}, "network")
