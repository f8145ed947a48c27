"""A network as a state wants it: compared, changed, taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.host.connection import libvirt, unless_gone
from saltvirt.host.network import links
from saltvirt.host.network import network as host_network
from saltvirt.images import tools
from saltvirt.revert import Revert
from saltvirt.states.desired import Outcome, by_path

if TYPE_CHECKING:
    from saltvirt.spec.network import NetworkSpec


@dataclass(frozen=True)
class Wish:
    """What a network shall be: its NetworkSpec, and whether it runs now and after boot.

    running: None leaves it as it is. restart: also when guests use it.
    """

    spec: NetworkSpec
    running: bool | None
    autostart: bool
    restart: bool = False


def converge(conn: libvirt.virConnect, wish: Wish, test: bool = False) -> Outcome:
    """Makes it so; the Outcome. test: change nothing, only say what would change."""
    outcome = Outcome(f"network {wish.spec.name}")
    if wish.spec.name not in host_network.names(conn):
        _created(wish, outcome)
        if not test:
            host_network.define(conn, wish.spec, bool(wish.running), wish.autostart)
        return outcome
    network = host_network.lookup(conn, wish.spec.name)
    step = _Step(conn, network, wish, outcome)
    step.plan()
    if outcome.changes and not test:
        step.carry_out()
    return outcome


def _created(wish: Wish, outcome: Outcome) -> None:
    outcome.switch("defined", False, True, "defined")
    outcome.switch("autostart", False, bool(wish.autostart), "marked for autostart")
    outcome.switch("active", False, bool(wish.running), "started")


class _Step:
    """From what a network is to what it shall be."""

    def __init__(
        self, conn: libvirt.virConnect, network: libvirt.virNetwork, wish: Wish, outcome: Outcome
    ) -> None:
        self.conn, self.network, self.wish, self.outcome = conn, network, wish, outcome
        self.difference = host_network.compare(network, wish.spec)
        self.active = bool(network.isActive())
        self.persistent = bool(network.isPersistent())
        self.users = users(conn, network) if self.difference.waiting else []
        may = wish.running and (wish.restart or not self.users)
        self.restarts = bool(self.difference.waiting and may)

    def plan(self) -> None:
        """Fills the Outcome."""
        found, outcome = self.difference, self.outcome
        now = found.now if self.restarts else found.live
        outcome.changes = {**by_path(now), **by_path(found.redefined)}
        if outcome.changes:
            outcome.done.append("updated")
        outcome.switch("persistent", self.persistent, True, "defined")
        before = bool(self.persistent and self.network.autostart())
        word = "marked for autostart" if self.wish.autostart else "no longer started with the host"
        outcome.switch("autostart", before, bool(self.wish.autostart), word)
        if self.wish.running:
            outcome.switch("active", self.active, True, "started")
        if self.restarts:
            outcome.done.append("restarted")
        elif found.waiting:
            outcome.notes.append(self._waits())

    def _waits(self) -> str:
        text = "What was changed takes effect when the network is started again"
        if self.users:
            text += f": {', '.join(self.users)} uses it"
        return text + (" (restart: True does it now)" if self.wish.running else "")

    def carry_out(self) -> None:
        """Changes what the plan says, or nothing."""
        changed, network = self.outcome.changes, self.network
        with Revert() as undo:
            if self.restarts:
                undo.push("start the network again", _start_again, self.conn, network)
            if self.difference.redefined or self.difference.live or not self.persistent:
                host_network.apply(self.conn, network, self.difference, live=not self.restarts)
                old = self.difference.current.tostring()
                undo.push("put the network back", self.conn.networkDefineXML, old)
            if "autostart" in changed:
                host_network.set_autostart(network, self.wish.autostart)
            if self.restarts:
                host_network.stop(network)
            if self.restarts or "active" in changed:
                _start_again(self.conn, network)
            undo.success()


def _start_again(conn: libvirt.virConnect, network: libvirt.virNetwork) -> None:
    """Starts a network that does not run, and connects the guests that were on it."""
    if network.isActive():
        return
    host_network.start(network)
    try:
        bridge = network.bridgeName()
    except libvirt.libvirtError:  # this mode has none
        return
    for tap in _taps(conn, network):
        tools.run(["ip", "link", "set", "dev", tap, "master", bridge], f"connect {tap} again")


def _interfaces(
    conn: libvirt.virConnect, network: libvirt.virNetwork
) -> Iterator[tuple[str, ElementTree.Element]]:
    """(guest's name, ``<interface>``) of the running guests on a network or its own bridge."""
    name, bridge = network.name(), host_network.own_bridge(network)
    for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        with unless_gone():
            for node in ElementTree.fromstring(dom.XMLDesc(0)).iterfind("devices/interface"):
                source = node.find("source")
                if source is None:
                    continue
                if source.get("network") == name or (bridge and source.get("bridge") == bridge):
                    yield dom.name(), node


def _taps(conn: libvirt.virConnect, network: libvirt.virNetwork) -> Iterator[str]:
    """The guests' devices of this host that belong into the network's bridge and are in none."""
    there = links.kinds()
    for _, node in _interfaces(conn, network):
        target = node.find("target")
        tap = target.get("dev") if target is not None else None
        if tap and there.get(tap) == "tun":
            yield tap


def users(conn: libvirt.virConnect, network: libvirt.virNetwork) -> list[str]:
    """Sorted names of the running guests on a network."""
    return sorted({name for name, _ in _interfaces(conn, network)})


def absent(conn: libvirt.virConnect, name: str, force: bool = False, test: bool = False) -> Outcome:
    """Stops and undefines a network; the Outcome.

    Raises InvalidInput when running guests are on it, unless ``force``.
    """
    outcome = Outcome(f"network {name}", quiet="is not there")
    if str(name) not in host_network.names(conn):
        return outcome
    network = host_network.lookup(conn, name)
    on_it = users(conn, network)
    if on_it and not force:
        raise errors.InvalidInput(
            f"network {name} on {conn.getHostname()} is used by {', '.join(on_it)}; "
            "force: True removes it all the same"
        )
    active, persistent = bool(network.isActive()), bool(network.isPersistent())
    outcome.switch("active", active, False, "stopped")
    outcome.switch("defined", True, False, "removed")
    if not test:
        if active:
            host_network.stop(network)
        if persistent:
            host_network.undefine(network)
    return outcome
