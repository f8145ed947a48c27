"""Build a network's definition from the user's arguments."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from saltvirt.design import nics
from saltvirt.design.put import put
from saltvirt.design.unknown_elements import keep_unknown, keep_unknown_of
from saltvirt.spec.network import OWN_BRIDGE
from saltvirt.xml.network.dhcp import DhcpHost, DhcpRange
from saltvirt.xml.network.dns import DnsHost, Forwarder, Hostname, Srv, Txt
from saltvirt.xml.network.forward import ForwardAddress, ForwardInterface
from saltvirt.xml.network.ip import Ip
from saltvirt.xml.network.network import Network
from saltvirt.xml.network.portgroup import PortGroup

if TYPE_CHECKING:
    from saltvirt.spec.network import NetworkSpec, PortGroupSpec
    from saltvirt.spec.network_dns import DnsSpec
    from saltvirt.spec.network_ip import IpSpec
    from saltvirt.spec.nic import BandwidthSpec
    from saltvirt.spec.switch import VirtualPortSpec, VlanSpec
    from saltvirt.xml.network.dns import Dns
    from saltvirt.xml.network.forward import Forward


def build(spec: NetworkSpec, actual: Network | None = None) -> Network:
    """Build the Network of a NetworkSpec.

    actual: the existing Network of this name; libvirt's choices (UUID, MAC, bridge) and settings
    that the spec does not contain are kept.
    """
    network = Network(name=spec.name)
    _forward(spec, network.forward)
    put(network, spec)
    if spec.dns:
        _dns(spec.dns, network.dns)
    _switch(network, spec.tag, spec.vport, spec.bandwidth)
    for group in spec.portgroups or ():
        _portgroup(group, network)
    for family, config in (("ipv4", spec.ipv4), ("ipv6", spec.ipv6)):
        if config:
            network.ips.append(_ip(family, config))
    if actual is not None:
        _keep(spec, network, actual)
    return network


def _forward(spec: NetworkSpec, forward: Forward) -> None:
    put(forward, spec)
    if spec.forward == "hostdev":
        forward.managed = True
    for name in spec.interfaces or ():
        forward.interfaces.append(ForwardInterface(dev=name))
    for device in spec.addresses or ():
        address = forward.addresses.append(ForwardAddress(type="pci"))
        address.set_pci(device.domain or 0, device.bus or 0, device.slot or 0, device.function or 0)
    if spec.nat:
        for kind in ("address", "port"):
            nat_range = getattr(spec.nat, kind)
            if nat_range:
                put(forward, nat_range, **{f"nat_{kind}_start": "start", f"nat_{kind}_end": "end"})


def _dns(spec: DnsSpec, dns: Dns) -> None:
    put(dns, spec)
    for item in spec.forwarders or ():
        dns.forwarders.append(put(Forwarder(), item))
    for name, value in (spec.txt or {}).items():
        dns.txts.append(Txt(name=name, value=value))
    for ip, names in (spec.hosts or {}).items():
        host = dns.hosts.append(DnsHost(ip=ip))
        for name in names:
            host.hostnames.append(Hostname(text=name))
    for record in spec.srvs or ():
        dns.srvs.append(put(Srv(), record))


def _switch(
    owner: Network | PortGroup,
    tag: VlanSpec | None,
    port: VirtualPortSpec | None,
    bandwidth: BandwidthSpec | None,
) -> None:
    if tag:
        nics.vlan(owner, tag)
    if port:
        nics.virtualport(owner, port)
    if bandwidth:
        nics.bandwidth(owner, bandwidth)


def _portgroup(spec: PortGroupSpec, network: Network) -> None:
    group = network.portgroups.append(put(PortGroup(), spec))
    _switch(group, spec.vlan, spec.virtualport, spec.bandwidth)


def _ip(family: str, spec: IpSpec) -> Ip:
    interface = spec.interface()
    ip = Ip(family=family, address=str(interface.ip), prefix=interface.network.prefixlen)
    put(ip, spec)
    for item in spec.dhcp_ranges or ():
        dhcp_range = ip.ranges.append(put(DhcpRange(), item))
        if item.lease_s:
            dhcp_range.lease_expiry, dhcp_range.lease_unit = item.lease_s, "seconds"
    for host in spec.hosts or ():
        ip.hosts.append(put(DhcpHost(), host))
    return ip


def _keep(spec: NetworkSpec, network: Network, actual: Network) -> None:
    """Keep settings that the spec does not contain."""
    network.uuid = actual.uuid
    network.title = actual.title
    if spec.portgroups is None:
        network.portgroups = actual.portgroups
    if spec.forward == actual.mode == "hostdev":
        for node in actual.forward.need().findall("driver"):
            network.forward.need().append(copy.deepcopy(node))
    if spec.forward in OWN_BRIDGE and actual.mode in OWN_BRIDGE:
        network.dns.forward_plain_names = actual.dns.forward_plain_names
        network.mac = actual.mac
        network.bridge = spec.bridge or actual.bridge
        network.routes = actual.routes
        for name in ("stp", "delay_s", "zone"):
            if getattr(network, name) is None:
                setattr(network, name, getattr(actual, name))
        _keep_ips(network, actual)
    keep_unknown_of(network.portgroups, actual.portgroups, ("name",))
    keep_unknown_of(network.dns.hosts, actual.dns.hosts, ("ip",))
    keep_unknown(network, actual)


def _keep_ips(network: Network, actual: Network) -> None:
    by_interface = {str(ip.interface()): ip for ip in actual.ips}
    for ip in network.ips:
        old = by_interface.get(str(ip.interface()))
        if old is not None:
            ip.local_ptr = old.local_ptr
            keep_unknown(ip, old)
            keep_unknown_of(ip.hosts, old.hosts, ("ip", "mac", "name", "id"))
