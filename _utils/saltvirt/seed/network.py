"""Configure static addresses of a guest's interfaces for the network manager of its system.

Interfaces are matched by their MAC addresses. Those without static addresses keep the image's
configuration.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from typing import TYPE_CHECKING

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from saltvirt.seed.data import Nic
    from saltvirt.seed.tree import GuestFiles

_WANTS = (
    "/etc/systemd/system",
    "/etc/systemd/system/multi-user.target.wants",
    "/etc/systemd/system/network-online.target.wants",
)
_MANAGER = {"NetworkManager.service", "dbus-org.freedesktop.nm-dispatcher.service"}
_NETWORKD = {"systemd-networkd.service", "dbus-org.freedesktop.network1.service"}
_RESOLVERS = (
    "/usr/lib/systemd/systemd-resolved",
    "/lib/systemd/systemd-resolved",
    "/sbin/resolvconf",
    "/usr/sbin/resolvconf",
)
_INTERFACES = "/etc/network/interfaces"
MAX_BYTES = 1024**2  # of netplan's files together


def _enabled(tree: GuestFiles) -> set[str]:
    return {name for folder in _WANTS for name in tree.names(folder)}


def _netplan(tree: GuestFiles) -> bytes | None:
    """All files of netplan as one text; None without netplan."""
    files = [name for name in tree.names("/etc/netplan") if name.endswith(".yaml")]
    if not files or not tree.exists("/usr/sbin/netplan"):
        return None
    text = b""
    for name in files:
        text += tree.read(f"/etc/netplan/{name}") + b"\n"
        if len(text) > MAX_BYTES:
            raise errors.SeedFailed(f"/etc/netplan in the guest has more than {MAX_BYTES} bytes")
    return text


def _family(version: int, nic: Nic, key: str) -> list[str]:
    addresses = nic.get(key) or ()
    return [item for item in addresses if ipaddress.ip_interface(item).version == version]


def _keyfile(number: int, nic: Nic) -> str:
    """NetworkManager's file for one interface."""
    lines = ["[connection]", f"id=salt-virt-{number}", f"uuid={uuid.uuid4()}", "type=ethernet"]
    lines += ["autoconnect-priority=100", "[ethernet]", f"mac-address={nic['mac']}"]
    for version in (4, 6):
        lines.append(f"[ipv{version}]")
        addresses = _family(version, nic, "addresses")
        if not addresses:
            lines.append("method=disabled" if version == 4 else "method=auto")
            continue
        lines.append("method=manual")
        lines += [f"address{n}={address}" for n, address in enumerate(addresses, 1)]
        lines += [f"gateway={entry}" for entry in _family(version, nic, "gateways")[:1]]
        servers = _family(version, nic, "nameservers")
        lines += [f"dns={''.join(entry + ';' for entry in servers)}"] if servers else []
        search = nic.get("search")
        lines += [f"dns-search={''.join(entry + ';' for entry in search)}"] if search else []
    return "\n".join(lines) + "\n"


def _network_manager(tree: GuestFiles, nics: Sequence[Nic]) -> None:
    for number, nic in enumerate(nics):
        if nic.get("addresses"):
            path = f"/etc/NetworkManager/system-connections/salt-virt-{number}.nmconnection"
            tree.write(path, _keyfile(number, nic).encode(), 0o600)


def _networkd(tree: GuestFiles, nics: Sequence[Nic]) -> None:
    # a lower number than that of netplan's files
    for number, nic in enumerate(nics):
        if nic.get("addresses"):
            lines = ["[Match]", f"MACAddress={nic['mac']}", "[Network]", "DHCP=no"]
            lines += [f"Address={entry}" for entry in nic["addresses"]]
            lines += [f"Gateway={entry}" for entry in nic.get("gateways") or ()]
            lines += [f"DNS={entry}" for entry in nic.get("nameservers") or ()]
            lines += [f"Domains={' '.join(nic['search'])}"] if nic.get("search") else []
            path = f"/etc/systemd/network/05-salt-virt-{number}.network"
            tree.write(path, ("\n".join(lines) + "\n").encode(), 0o644)


def _stanza(name: str, nic: Nic) -> Iterator[str]:
    """The lines of ifupdown for one interface."""
    yield f"auto {name}"
    if not nic.get("addresses"):
        yield f"iface {name} inet dhcp"
        return
    for version, word in ((4, "inet"), (6, "inet6")):
        gateways = _family(version, nic, "gateways")[:1]
        for address in _family(version, nic, "addresses"):
            yield f"iface {name} {word} static"
            yield f"  address {address}"
            yield from (f"  gateway {gateway}" for gateway in gateways)
            gateways = []
    for key, option in (("nameservers", "dns-nameservers"), ("search", "dns-search")):
        if nic.get(key):
            yield f"  {option} {' '.join(nic[key])}"


def _ifupdown(tree: GuestFiles, nics: Sequence[Nic]) -> None:
    """Write all interfaces, with names that do not depend on their slots."""
    header = "# Written by Salt Virt when this guest was created."
    lines = [header, "auto lo", "iface lo inet loopback"]
    for number, nic in enumerate(nics):
        name = f"virt{number}"
        link = f"[Match]\nMACAddress={nic['mac']}\n[Link]\nName={name}\n"
        tree.write(f"/etc/systemd/network/10-salt-virt-{number}.link", link.encode(), 0o644)
        lines += _stanza(name, nic)
    tree.write(_INTERFACES, ("\n".join(lines) + "\n").encode(), 0o644)


def _manager_of(tree: GuestFiles) -> tuple[Callable[[GuestFiles, Sequence[Nic]], None], str | None]:
    """(function that configures the system's network manager, unit that must be enabled or
    None)."""
    enabled, netplan = _enabled(tree), _netplan(tree)
    if netplan is not None:
        by_manager = re.search(rb"(?m)^\s*renderer:\s*[\"']?NetworkManager", netplan)
        if by_manager:
            return _network_manager, "NetworkManager.service"
        return _networkd, "systemd-networkd.service"
    if enabled & _MANAGER:
        return _network_manager, None
    if enabled & _NETWORKD:
        return _networkd, None
    if tree.exists(_INTERFACES) and (tree.exists("/sbin/ifup") or tree.exists("/usr/sbin/ifup")):
        return _ifupdown, None
    raise errors.SeedFailed(
        "the image uses none of NetworkManager, systemd-networkd, netplan and ifupdown, "
        "so its interfaces cannot get static addresses: use DHCP, or seed with cloud-init"
    )


def _name_servers(tree: GuestFiles, nics: Sequence[Nic]) -> None:
    """Write resolv.conf if nothing else in the system does."""
    lines = [f"nameserver {entry}" for nic in nics for entry in nic.get("nameservers") or ()]
    search = [entry for nic in nics for entry in nic.get("search") or ()]
    if lines and not any(tree.exists(path) for path in _RESOLVERS):
        lines += [f"search {' '.join(search)}"] if search else []
        tree.remove("/etc/resolv.conf")  # a link would lead elsewhere
        tree.write("/etc/resolv.conf", ("\n".join(lines) + "\n").encode(), 0o644)


def configure(tree: GuestFiles, nics: Sequence[Nic]) -> str | None:
    """Write the addresses. Returns the unit that must be enabled for them, or None.

    nics: all the guest's interfaces in order, dicts of ``mac`` and optionally ``addresses`` (CIDR),
    ``gateways``, ``nameservers``, ``search``. Raises SeedFailed for an unknown network manager.
    """
    if not any(nic.get("addresses") for nic in nics):
        return None
    write, unit = _manager_of(tree)
    write(tree, nics)
    if write is not _network_manager:
        _name_servers(tree, nics)
    return unit
