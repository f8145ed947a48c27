"""The networks and the bridges of a host, with the guests that use them."""

from __future__ import annotations

from collections import defaultdict
from typing import cast
from xml.etree import ElementTree

from saltvirt.answers.inspection import BridgeSummary, HostNetworks, NetworkSummary
from saltvirt.host import connection
from saltvirt.host.connection import ReadFailure, libvirt
from saltvirt.host.network import links, networks
from saltvirt.spec.network import OWN_BRIDGE

# (kind of the interface, its source) to the names of guests
_Users = dict[tuple[str, str], set[str]]


def read(conn: libvirt.virConnect) -> HostNetworks:
    """Return the networks of libvirt, and the bridges that no network of libvirt has created."""
    users = _users(conn)
    summaries: dict[str, NetworkSummary] = {}
    for name, info in networks.infos(conn).items():
        guests = tuple(sorted(users["network", name]))
        error = cast("ReadFailure", info).get("error")
        if error:
            summaries[name] = NetworkSummary(guests=guests, error=error)
        else:
            summaries[name] = _summary(conn, name, cast("networks.NetworkInfo", info), guests)
    created = {summary.bridge for summary in summaries.values() if summary.forward in OWN_BRIDGE}
    bridges = links.bridges() if connection.is_local(conn) else []
    return HostNetworks(
        summaries,
        {
            name: BridgeSummary(tuple(sorted(users["bridge", name])))
            for name in bridges
            if name not in created
        },
    )


def _users(conn: libvirt.virConnect) -> _Users:
    users: _Users = defaultdict(set)
    for dom in conn.listAllDomains():
        with connection.skip_undefined():
            name, tree = dom.name(), ElementTree.fromstring(dom.XMLDesc(0))
            for node in tree.iterfind("devices/interface"):
                kind, source = node.get("type", ""), node.find("source")
                if source is not None:
                    users[kind, source.get(kind, "")].add(name)
    return users


def _summary(
    conn: libvirt.virConnect, name: str, info: networks.NetworkInfo, guests: tuple[str, ...]
) -> NetworkSummary:
    return NetworkSummary(
        uuid=info["uuid"],
        active=info["active"],
        autostart=info["autostart"],
        persistent=info["persistent"],
        pending=info["pending"],
        forward=info["forward"],
        bridge=info["bridge"],
        addresses=networks.addresses(networks.lookup(conn, name)),
        leases=len(info["leases"]),
        guests=guests,
    )
