"""IP addresses of guests, from all available sources, without waiting for any of them."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypedDict

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import describe, lookup, stats

AGENT_PATIENCE_S = 2
# a guest can claim any number of addresses in the ARP table
MAX_ADDRESSES = 32
LEASES_S = 2
ARP_TABLE = "/proc/net/arp"
# virConnectListAllNetworksFlags
_ACTIVE_NETWORKS = 2
_KINDS = {0: "ipv4", 1: "ipv6"}


class GuestAddress(TypedDict):
    """prefix: length of the network prefix in bits; None if unknown."""

    address: str
    prefix: int | None
    type: str


class GuestInterface(TypedDict):
    """interface: its name in the guest, or on the host. source: lease, agent or arp."""

    interface: str
    source: str
    addresses: list[GuestAddress]


# by MAC address
Addresses = dict[str, GuestInterface]


def has_agent(dom: libvirt.virDomain) -> bool:
    """Return whether a guest agent is connected to its channel; otherwise libvirt would wait for
    one."""
    return any(
        node.get("name") == "org.qemu.guest_agent.0" and node.get("state") == "connected"
        for node in stats.tree(dom).iterfind("devices/channel/target")
    )


def _sources(dom: libvirt.virDomain) -> Iterator[tuple[str, int]]:
    yield "lease", libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE
    if has_agent(dom):
        _limit_agent(dom)
        yield "agent", libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
    yield "arp", libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP


def _limit_agent(dom: libvirt.virDomain) -> None:
    with contextlib.suppress(AttributeError, libvirt.libvirtError):
        dom.agentSetResponseTimeout(AGENT_PATIENCE_S, 0)


def of_agent(dom: libvirt.virDomain) -> list[str]:
    """Return the addresses that the guest agent reports; none without a connected agent, or if the
    guest is paused. Raises OperationFailed if it does not respond."""
    if dom.state()[0] != libvirt.VIR_DOMAIN_RUNNING or not has_agent(dom):
        return []
    _limit_agent(dom)
    source = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
    try:
        # libvirt also waits for another request to the agent
        answer = connection.run_with_timeout(
            AGENT_PATIENCE_S + 1, dom.interfaceAddresses, source, 0
        )
    except TimeoutError:
        raise errors.OperationFailed("the guest agent is busy") from None
    except libvirt.libvirtError as exc:
        raise errors.OperationFailed(connection.translate(exc).text) from exc
    nics = (nic for part in _parse(answer, "agent") for nic in part.values())
    entries = (entry for nic in nics for entry in nic["addresses"])
    return [entry["address"] for entry in entries if _is_address(entry["address"])]


def _is_address(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _parse(interfaces: dict[str, dict[str, Any]] | None, source: str) -> list[Addresses]:
    """Return libvirt's answer by MAC address, without loopback interfaces. Interfaces in the guest
    can share a MAC address, as a VLAN and its link do: each further one is in a further part."""
    parts: list[Addresses] = []
    for interface, facts in (interfaces or {}).items():
        mac, addresses = facts.get("hwaddr"), facts.get("addrs")
        if not addresses or not mac or mac == "00:00:00:00:00:00":
            continue
        part = next((part for part in parts if mac not in part), None)
        if part is None:
            parts.append(part := {})
        part[mac] = {
            "interface": interface,
            "source": source,
            "addresses": [
                {
                    "address": address["addr"],
                    "prefix": address.get("prefix"),
                    "type": _KINDS.get(address["type"], str(address["type"])),
                }
                for address in addresses
            ],
        }
    return parts


def _own_arp_table(macs: Collection[str]) -> Addresses:
    """Return the host's IPv4 neighbours with these MAC addresses.

    libvirt (seen in 9.0 on Linux 6.18, "wrong nlmsg len") cannot read every kernel's table. The
    table is useless for a libvirt on another host, whose guests are not in it.
    """
    neighbours: Addresses = {}
    with contextlib.suppress(OSError), open(ARP_TABLE, encoding="ascii") as table:
        for line in table.readlines()[1:]:
            address, _, flags, mac, _, _ = line.split()
            if mac in macs and int(flags, 16):
                entry: GuestAddress = {"address": address, "prefix": 0, "type": "ipv4"}
                interface = neighbours.setdefault(
                    mac, {"interface": "N/A", "source": "arp", "addresses": []}
                )
                interface["addresses"].append(entry)
    return neighbours


def by_source(dom: libvirt.virDomain) -> list[Addresses]:
    """Return what each source knows about an active domain, in one or more parts."""
    answers: list[Addresses] = []
    for name, source in _sources(dom):
        with contextlib.suppress(libvirt.libvirtError):
            answers += _parse(dom.interfaceAddresses(source, 0), name)
    macs = {mac.lower() for mac in describe.macs(stats.tree(dom))}
    return [*answers, _own_arp_table(macs)]


def of_domain(dom: libvirt.virDomain) -> Addresses:
    """Return {mac: {"interface", "source", "addresses"}}; empty if no source knows an address. The
    first source that knows a MAC address counts, with the name of its first interface."""
    result: Addresses = {}
    for answer in by_source(dom) if dom.isActive() else ():
        for mac, interface in answer.items():
            first = result.setdefault(mac, interface)
            if first is not interface and first["source"] == interface["source"]:
                first["addresses"] += interface["addresses"]
    return result


def without_guests(conn: libvirt.virConnect, macs: Collection[str]) -> dict[str, list[str]]:
    """Return the addresses that libvirt's DHCP servers and the ARP table of the host know, by MAC
    address in lower case. No guest is asked, so that none can delay the answer."""
    by_mac: dict[str, set[str]] = {mac: set() for mac in macs}
    for lease in _leases(conn):
        by_mac.setdefault(str(lease["mac"]).lower(), set()).add(lease["ipaddr"])
    for mac, neighbour in _own_arp_table(macs).items():
        by_mac[mac].update(entry["address"] for entry in neighbour["addresses"])
    return {mac: in_order(by_mac[mac])[:MAX_ADDRESSES] for mac in macs}


def _leases(conn: libvirt.virConnect) -> list[dict[str, Any]]:
    """Return the leases of all networks; none of a driver or network without DHCP, or if they
    cannot be read in time: networks may have a daemon of their own, which hangs."""
    with contextlib.suppress(libvirt.libvirtError, TimeoutError):
        return connection.run_with_timeout(LEASES_S, _read_leases, conn)
    return []


def _read_leases(conn: libvirt.virConnect) -> list[dict[str, Any]]:
    leases: list[dict[str, Any]] = []
    for network in conn.listAllNetworks(_ACTIVE_NETWORKS):
        with contextlib.suppress(libvirt.libvirtError):
            leases += network.DHCPLeases()
    return leases


def in_order(addresses: Iterable[str]) -> list[str]:
    """Return addresses in their order of use: IPv4 first, link-local ones last."""
    return sorted(addresses, key=lambda text: (is_link_local(text), ":" in text, text))


def is_link_local(address: str) -> bool:
    """Return whether an address is only valid on its link."""
    return address.lower().startswith(("fe80:", "169.254."))


def addresses(conn: libvirt.virConnect, name: str | None = None) -> dict[str, Addresses]:
    """Return the addresses of one guest, or of all active guests, by name."""
    if name:
        return {str(name): of_domain(lookup.lookup(conn, name))}
    by_guest = {}
    for dom in conn.listAllDomains(lookup.ACTIVE):
        with contextlib.suppress(libvirt.libvirtError):  # gone since it was listed
            by_guest[dom.name()] = of_domain(dom)
    return dict(sorted(by_guest.items()))
