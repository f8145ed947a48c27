"""Convergence of a network to its desired state, and its removal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design.network import build
from saltvirt.host.connection import libvirt, skip_undefined
from saltvirt.host.domain import lookup
from saltvirt.host.network import links, networks
from saltvirt.revert import UndoStack
from saltvirt.rights import confidential
from saltvirt.states.networks import DesiredNetwork, NetworkFacts, changed, created, restarts
from saltvirt.states.outcome import StateOutcome
from saltvirt.system import tools


def converge(conn: libvirt.virConnect, desired: DesiredNetwork, test: bool = False) -> StateOutcome:
    """Bring the network to its desired state.

    test: change nothing, only report what would change.
    """
    spec = desired.spec
    if spec.name not in networks.names(conn):
        outcome = created(desired)
        if desired.running or desired.autostart:
            networks.refuse_bridge_taken(spec.name, build(spec))
        if not test:
            networks.define(conn, spec, bool(desired.running), desired.autostart)
        return outcome
    network = networks.lookup(conn, spec.name)
    difference = networks.compare(network, spec)
    facts = _facts(conn, network, difference)
    outcome = changed(desired, facts)
    starts = any(outcome.changes.get(key, {}).get("new") is True for key in ("active", "autostart"))
    if starts and not facts.active:
        networks.refuse_bridge_taken(spec.name, difference.desired)
    if outcome.changes and not test:
        restart = restarts(desired, facts)
        with UndoStack() as undo:
            _carry_out(conn, network, difference, outcome.changes, restart, undo)
            undo.success()
    return outcome


def _facts(
    conn: libvirt.virConnect, network: libvirt.virNetwork, difference: networks.NetworkDifference
) -> NetworkFacts:
    persistent = bool(network.isPersistent())
    return NetworkFacts(
        active=bool(network.isActive()),
        persistent=persistent,
        autostart=bool(persistent and network.autostart()),
        redefined=difference.redefined,
        live=difference.live,
        waiting=difference.deferred,
        users=users(conn, network) if difference.deferred else [],
    )


def _carry_out(
    conn: libvirt.virConnect,
    network: libvirt.virNetwork,
    difference: networks.NetworkDifference,
    changes: dict[str, Any],
    restart: bool,
    undo: UndoStack,
) -> None:
    """Apply the changes of the Outcome, or none of them.

    restart: stop and start the network.
    """
    if restart:
        undo.push("restart the network", _start_again, conn, network)
    if difference.redefined or difference.live or "persistent" in changes:
        networks.apply(conn, network, difference, live=not restart)
        old = difference.current.tostring()
        undo.push("restore the network", conn.networkDefineXML, old)
    if "autostart" in changes:
        networks.set_autostart(network, changes["autostart"]["new"])
    if restart:
        networks.stop(network)
    if restart or "active" in changes:
        _start_again(conn, network)


def _start_again(conn: libvirt.virConnect, network: libvirt.virNetwork) -> None:
    """Start an inactive network, and reconnect the guests that were on it."""
    if network.isActive():
        return
    networks.start(network)
    try:
        bridge = network.bridgeName()
    except libvirt.libvirtError:  # networks of this mode have no bridge
        return
    if links.kinds().get(bridge) != "bridge":  # Open vSwitch keeps its ports
        return
    for tap in _taps(conn, network):
        tools.run(["ip", "link", "set", "dev", tap, "master", bridge], f"reconnect {tap}")


def _interfaces(
    conn: libvirt.virConnect, network: libvirt.virNetwork
) -> Iterator[tuple[str, ElementTree.Element]]:
    """Yield (guest, ``<interface>``) of the running guests on a network or on its own bridge."""
    name, bridge = network.name(), networks.own_bridge(network)
    for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        with skip_undefined():
            for node in ElementTree.fromstring(dom.XMLDesc(0)).iterfind("devices/interface"):
                source = node.find("source")
                if source is None:
                    continue
                if source.get("network") == name or (bridge and source.get("bridge") == bridge):
                    yield dom.name(), node


def _taps(conn: libvirt.virConnect, network: libvirt.virNetwork) -> Iterator[str]:
    """Yield the guests' devices that belong to the network's bridge but are ports of none."""
    device_kinds, ports = links.kinds(), links.bridge_ports()
    for _, node in _interfaces(conn, network):
        target = node.find("target")
        tap = target.get("dev") if target is not None else None
        if tap and device_kinds.get(tap) == "tun" and tap not in ports:
            yield tap


def users(conn: libvirt.virConnect, network: libvirt.virNetwork) -> list[str]:
    """Return the sorted names of the running guests on a network."""
    return sorted({name for name, _ in _interfaces(conn, network)})


def remove(
    conn: libvirt.virConnect, name: str, force: bool = False, test: bool = False
) -> StateOutcome:
    """Stop and undefine a network.

    Raises InvalidInput if running guests are on it, unless ``force``.
    """
    outcome = StateOutcome(f"network {name}", unchanged_text="is not there")
    if str(name) not in networks.names(conn):
        return outcome
    network = networks.lookup(conn, name)
    guest_names = users(conn, network)
    if guest_names and not force:
        raise errors.InvalidInput(
            f"network {name} on {conn.getHostname()} is used by "
            f"{confidential.sensitive_names(guest_names)}; to remove it anyway, set force: True"
        )
    active, persistent = bool(network.isActive()), bool(network.isPersistent())
    outcome.switch("active", active, False, "stopped")
    outcome.switch("defined", True, False, "removed")
    if stopped_guests := lookup.off_with_source(conn, "interface", "network", str(name)):
        names = confidential.sensitive_names(stopped_guests)
        outcome.notes.append(f"{names} cannot be started without it: each has an interface on it")
    if not test:
        if active:
            networks.stop(network)
        if persistent:
            networks.undefine(network)
    return outcome
