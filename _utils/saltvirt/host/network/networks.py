"""Networks of one host."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import errors
from saltvirt.design.network import build
from saltvirt.diff.network_changes import changes
from saltvirt.host import connection
from saltvirt.host.connection import ReadFailure, as_not_found, libvirt, translated
from saltvirt.host.definition import configured
from saltvirt.host.network import links
from saltvirt.revert import UndoStack
from saltvirt.spec.network import OWN_BRIDGE
from saltvirt.xml.network.network import Network

if TYPE_CHECKING:
    from saltvirt.diff.network_changes import NetworkChange
    from saltvirt.spec.network import NetworkSpec

# values of virNetworkUpdateCommand
_COMMANDS = {"modify": 1, "delete": 2, "add": 3}


def lookup(conn: libvirt.virConnect, name: str) -> libvirt.virNetwork:
    """Return the virNetwork with this name. Raises NotFound, with the host and its networks."""
    with as_not_found(conn, libvirt.VIR_ERR_NO_NETWORK, f"network {str(name)!r}", names):
        return conn.networkLookupByName(str(name))


def names(conn: libvirt.virConnect) -> list[str]:
    """Return the sorted names of all networks."""
    return sorted(network.name() for network in conn.listAllNetworks())


def infos(
    conn: libvirt.virConnect, name: str | None = None
) -> dict[str, NetworkInfo | ReadFailure]:
    """Return information about each network by name; see ``virt.network_info``."""
    return connection.infos(conn.listAllNetworks(), name, _info)


def define(
    conn: libvirt.virConnect, spec: NetworkSpec, start: bool = True, autostart: bool = True
) -> bool:
    """Define the network of a NetworkSpec; True. On failure, the definition is removed again."""
    name = spec.name
    if name in names(conn):
        raise errors.AlreadyExists(
            f"network {name} already exists on {conn.getHostname()}; virt.network_update changes it"
        )
    desired = build(spec)
    if start or autostart:
        refuse_bridge_taken(name, desired)
    with translated(f"define network {name}"), UndoStack() as undo:
        network = conn.networkDefineXML(desired.tostring())
        undo.push(f"undefine network {name}", network.undefine)
        network.setAutostart(int(bool(autostart)))
        if start:
            with translated(f"start network {name}"):
                network.create()
        undo.success()
    return True


class NetworkInfo(TypedDict):
    """Information about a network.

    pending: the definition for the next start differs from the active one. leases: libvirt's
    leases, with ``type`` as text.
    """

    uuid: str
    bridge: str | None
    forward: str | None
    autostart: bool
    active: bool
    persistent: bool
    pending: bool
    leases: list[dict[str, Any]]


@dataclass(frozen=True)
class NetworkDifference:
    """The difference between a network and a NetworkSpec.

    current, desired: the definitions. redefined: changes to the stored definition. running_changes:
    changes to the active network, empty if it is inactive.
    """

    current: Network
    desired: Network
    redefined: list[NetworkChange]
    running_changes: list[NetworkChange]

    @property
    def live(self) -> list[NetworkChange]:
        """The changes that the active network can apply immediately."""
        return [change for change in self.running_changes if change.live]

    @property
    def deferred(self) -> list[NetworkChange]:
        """The changes that take effect at the next start."""
        return [change for change in self.running_changes if not change.live]


def compare(network: libvirt.virNetwork, spec: NetworkSpec) -> NetworkDifference:
    """Compare a virNetwork with its NetworkSpec."""
    current = _configured(network)
    desired = build(spec, current)
    running_changes = changes(desired, _read(network)) if network.isActive() else []
    return NetworkDifference(current, desired, changes(desired, current), running_changes)


def update(conn: libvirt.virConnect, spec: NetworkSpec, test: bool = False) -> bool:
    """Update a network to its NetworkSpec; return whether it differed.

    An active network applies immediately what libvirt can change; the rest takes effect at the next
    start. test: change nothing.
    """
    network = lookup(conn, spec.name)
    difference = compare(network, spec)
    differs = bool(difference.redefined or difference.live)
    if differs and not test:
        apply(conn, network, difference)
    return differs


def apply(
    conn: libvirt.virConnect,
    network: libvirt.virNetwork,
    difference: NetworkDifference,
    live: bool = True,
) -> None:
    """Redefine the network and apply live changes, or undo all of it.

    live: False if the network is restarted anyway.
    """
    definitions = (difference.current, difference.desired)
    _change(conn, network, definitions, difference.live if live else [])


def own_bridge(network: libvirt.virNetwork) -> str | None:
    """Return the name of the bridge that libvirt manages for a network, or None."""
    return _bridge(_read(network))


def addresses(network: libvirt.virNetwork) -> tuple[str, ...]:
    """Return the host's addresses on a network, with prefixes."""
    return tuple(str(ip.interface()) for ip in _read(network).ips if ip.address)


def _bridge(network: Network) -> str | None:
    return network.bridge if network.mode in OWN_BRIDGE else None


def refuse_bridge_taken(name: str, network: Network) -> None:
    """Raise AlreadyExists if a device has the name of the bridge of an inactive network.

    libvirt 11.3 fails to create the bridge and then deletes the existing device: with ``br0``, the
    host and all guests lose their network (observed on Debian 13; 9.0 keeps the device).
    """
    bridge = _bridge(network)
    if bridge and bridge in links.kinds():
        raise errors.AlreadyExists(
            f"network {name}: this host already has a device {bridge}, and libvirt would create a "
            f"bridge with that name: choose another name, or set forward=bridge to use {bridge}"
        )


def _refuse_to_start(network: libvirt.virNetwork) -> None:
    """Raise AlreadyExists if an inactive network must not be started."""
    if not network.isActive():
        refuse_bridge_taken(network.name(), _read(network))


def _change(
    conn: libvirt.virConnect,
    network: libvirt.virNetwork,
    definitions: tuple[Network, Network],
    live: list[NetworkChange],
) -> None:
    old, new = definitions
    if _bridge(new) != _bridge(old):
        refuse_bridge_taken(network.name(), new)
    with translated(f"update network {network.name()}"), UndoStack() as undo:
        conn.networkDefineXML(new.tostring())
        undo.push(f"restore network {network.name()}", conn.networkDefineXML, old.tostring())
        for change in live:
            _apply(network, change, change.command, change.xml)
            inverse = {"add": "delete", "delete": "add"}.get(change.command, change.command)
            xml = change.old_xml or change.xml
            undo.push(f"restore {change.path}", _apply, network, change, inverse, xml)
        undo.success()


def start(network: libvirt.virNetwork) -> bool:
    """Start the network; True.

    An active network is an error of libvirt. Raises AlreadyExists if a device has the name of its
    bridge.
    """
    with translated(f"start network {network.name()}"):
        _refuse_to_start(network)
        network.create()
    return True


def stop(network: libvirt.virNetwork) -> bool:
    """Stop the network; True."""
    with translated(f"stop network {network.name()}"):
        network.destroy()
    return True


def undefine(network: libvirt.virNetwork) -> bool:
    """Undefine the network; True. An active network remains until it is stopped."""
    with translated(f"undefine network {network.name()}"):
        network.undefine()
    return True


def set_autostart(network: libvirt.virNetwork, on: bool) -> bool:
    """Set whether the network starts with the host; True. Raises AlreadyExists as start does."""
    with translated(f"set autostart of network {network.name()}"):
        if on:
            _refuse_to_start(network)
        network.setAutostart(int(on))
    return True


def _apply(network: libvirt.virNetwork, change: NetworkChange, command: str, xml: str) -> None:
    section = getattr(libvirt, f"VIR_NETWORK_SECTION_{change.section.upper().replace('-', '_')}")
    flags = libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE
    network.update(_COMMANDS[command], section, change.parent_index, xml, flags)


def _info(network: libvirt.virNetwork) -> NetworkInfo:
    active, persistent = bool(network.isActive()), bool(network.isPersistent())
    running_xml = _read(network)
    return {
        "uuid": network.UUIDString(),
        "bridge": running_xml.bridge,
        "forward": running_xml.mode,
        "autostart": bool(persistent and network.autostart()),
        "active": active,
        "persistent": persistent,
        "pending": active and persistent and _is_pending(network, running_xml),
        "leases": _leases(network) if active else [],
    }


def _is_pending(network: libvirt.virNetwork, running_xml: Network) -> bool:
    return bool(changes(_configured(network), running_xml))


def _leases(network: libvirt.virNetwork) -> list[dict[str, Any]]:
    kinds = {libvirt.VIR_IP_ADDR_TYPE_IPV4: "ipv4", libvirt.VIR_IP_ADDR_TYPE_IPV6: "ipv6"}
    with contextlib.suppress(libvirt.libvirtError):  # a driver or mode without DHCP
        return [{**lease, "type": kinds.get(lease["type"])} for lease in network.DHCPLeases()]
    return []


def _read(network: libvirt.virNetwork) -> Network:
    """Return the active definition of the network, or the stored one if it is inactive."""
    return Network.fromstring(network.XMLDesc(0))


def _configured(network: libvirt.virNetwork) -> Network:
    """Return the stored definition of the network."""
    return Network.fromstring(configured(network, libvirt.VIR_NETWORK_XML_INACTIVE))
