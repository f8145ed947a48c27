"""Differences between a desired and an actual network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.design.plain_data import plain
from saltvirt.xml.network.forward import ForwardInterface

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from saltvirt.xml.base import Element
    from saltvirt.xml.network.ip import Ip
    from saltvirt.xml.network.network import Network

# lists that virNetworkUpdate can change on an active network: property -> libvirt's section
LIVE_LISTS = {
    "portgroups": ("portgroup", ("name",)),
    "dns.hosts": ("dns-host", ("ip",)),
    "dns.txts": ("dns-txt", ("name",)),
    "dns.srvs": ("dns-srv", ("service", "protocol", "domain", "target", "port")),
    "forward.interfaces": ("forward-interface", ("dev",)),
    "ip.ranges": ("ip-dhcp-range", ("start", "end")),
    "ip.hosts": ("ip-dhcp-host", ("ip", "mac", "name", "id")),
}
MODIFIED = ("portgroup",)  # sections whose items libvirt can also modify
_NAT_PORTS = {"nat_port_start": 1024, "nat_port_end": 65535}
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}
_COUNTS = ("connections",)
_IGNORED = (*_COUNTS, "uuid", "mac", "title")

# the keys from the top of nested dictionaries to a value
Path = tuple[Any, ...]


@dataclass(frozen=True)
class NetworkChange:
    """A difference. If ``live``, virNetworkUpdate can apply it: command, section, xml, parent_index
    (of the ``<ip>``, else -1), and old_xml to roll it back; otherwise the network is defined again
    and restarted."""

    path: str
    old: object = None
    new: object = None
    live: bool = False
    command: str = ""
    section: str = ""
    xml: str = ""
    parent_index: int = -1
    old_xml: str = ""


def changes(desired: Network, actual: Network) -> list[NetworkChange]:
    """The list of NetworkChange from ``actual`` to ``desired``, both xml.network.Network.

    Settings that libvirt adds (bridge, MAC, default NAT ports) are not differences.
    """
    old, new = _normal(actual, desired), _normal(desired, desired)
    differences, moved = [], False
    for path in sorted({*old, *new}, key=str):
        if old.get(path) != new.get(path):
            # a list can belong to an element that does not exist yet
            moved = moved or path[0] in ("ips", "forward")
            text = "/".join(map(str, path))
            differences.append(NetworkChange(text, old.get(path), new.get(path)))
    return differences + list(_lists(desired, actual, restart=moved))


def _normal(network: Network, desired: Network) -> dict[Path, Any]:
    """{path: value} of settings that can only change by defining the network again."""
    data = plain(network, skip=_IGNORED)
    if network.mode in (None, "nat", "route", "open"):
        data.setdefault("stp", True)
        data.setdefault("delay_s", 0)
        if desired.bridge is None:
            data.pop("bridge", None)
    data.pop("portgroups", None)
    _normal_forward(data, network.mode)
    for name in ("hosts", "txts", "srvs"):
        data.get("dns", {}).pop(name, None)
    if not data.get("dns"):
        data.pop("dns", None)
    data["ips"] = {
        _address(ip): {
            key: value
            for key, value in plain(ip).items()
            if key in ("tftp", "bootp_file", "bootp_server", "local_ptr")
        }
        for ip in network.ips
    }
    return dict(_leaves(data))


def _normal_forward(data: dict[str, Any], mode: str | None) -> None:
    forward = data.setdefault("forward", {})
    if mode:
        forward["mode"] = mode
    for name in ("interfaces", "dev"):  # compared as a list, see _pairs
        forward.pop(name, None)
    # virtual functions, which libvirt lists for an active network
    if "physical_function" in forward:
        forward.pop("addresses", None)
    if all(forward.get(name) == value for name, value in _NAT_PORTS.items()):
        for name in _NAT_PORTS:
            forward.pop(name)
    for address in forward.get("addresses", ()):
        address.setdefault("domain", 0)
        address["type"] = "pci"
    if not forward:
        data.pop("forward", None)


def _leaves(data: Mapping[Any, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _lists(desired: Network, actual: Network, restart: bool) -> Iterator[NetworkChange]:
    """The differences of lists that can change while the network is active."""
    for name, section, keys, old, new, index in _pairs(desired, actual):
        before, after = _keyed(old, keys), _keyed(new, keys)
        for key in [k for k in before if k not in after]:
            yield _change(name, section, "delete", before[key], None, restart, index)
        # the default group last, because there can only be one
        for key, item in sorted(after.items(), key=_is_default):
            if key not in before:
                yield _change(name, section, "add", None, item, restart, index)
            elif _comparable(before[key]) != _comparable(item):
                if section in MODIFIED:
                    yield _change(name, section, "modify", before[key], item, restart, index)
                else:
                    yield _change(name, section, "delete", before[key], None, restart, index)
                    yield _change(name, section, "add", None, item, restart, index)


def _is_default(keyed: tuple[tuple[Any, ...], Element]) -> bool:
    return bool(getattr(keyed[1], "default", None))


def _pairs(
    desired: Network, actual: Network
) -> Iterator[tuple[str, str, tuple[str, ...], list[Element], list[Element], int]]:
    for path, (section, keys) in LIVE_LISTS.items():
        part, _, name = path.rpartition(".")
        if part == "forward" and desired.forward.physical_function:
            continue  # virtual functions, which libvirt lists for an active network
        if part != "ip":
            owners = [getattr(n, part) if part else n for n in (actual, desired)]
            device_lists = [list(getattr(owner, name)) for owner in owners]
            if name == "interfaces":
                device_lists = [
                    interfaces or _device(n)
                    for interfaces, n in zip(device_lists, (actual, desired), strict=True)
                ]
            before, after = device_lists
            yield path, section, keys, before, after, -1
            continue
        existing = {_address(ip): (position, ip) for position, ip in enumerate(actual.ips)}
        for ip in desired.ips:
            # libvirt uses the index of the address in the active network
            index, old = existing.get(_address(ip), (-1, None))
            before = list(getattr(old, name)) if old is not None else []
            yield path, section, keys, before, list(getattr(ip, name)), index


def _comparable(item: Element) -> dict[str, Any]:
    """The data of a list item for comparison, with the lease time in seconds."""
    data = plain(item, skip=_COUNTS)
    if "lease_expiry" in data:
        data["lease_expiry"] *= _SECONDS[data.pop("lease_unit", "minutes")]
    return data


def _address(ip: Ip) -> tuple[str, str]:
    return ip.family or "ipv4", str(ip.interface())


def _device(network: Network) -> list[ForwardInterface]:
    """The device of ``<forward dev=…>``, which libvirt also lists as an interface."""
    return [ForwardInterface(dev=network.forward.dev)] if network.forward.dev else []


def _keyed(items: Iterable[Element], keys: Collection[str]) -> dict[tuple[Any, ...], Element]:
    return {tuple(getattr(item, key) for key in keys): item for item in items}


def _change(
    path: str,
    section: str,
    command: str,
    old: Element | None,
    new: Element | None,
    restart: bool,
    index: int,
) -> NetworkChange:
    device = new if new is not None else old
    return NetworkChange(
        path=path.replace(".", "/"),
        old=plain(old, skip=_COUNTS) if old is not None else None,
        new=plain(new, skip=_COUNTS) if new is not None else None,
        live=not restart,
        command=command,
        section=section,
        xml=device.tostring().strip() if device is not None else "",
        parent_index=index,
        old_xml=old.tostring().strip() if old is not None else "",
    )
