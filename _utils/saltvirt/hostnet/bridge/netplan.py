"""netplan, with systemd-networkd or NetworkManager behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt import plain
from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge import networkd
from saltvirt.hostnet.bridge.plan import BridgePlan, already

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from saltvirt.hostnet.bridge.plan import BridgeHost, Vlan

# the path of a file, and what is in it
Read = tuple[str, dict[str, Any]]

_KINDS = ("ethernets", "bonds", "bridges")
# what belongs to the cable; everything else is about addresses and moves to the bridge
OF_THE_CABLE = {
    *("match", "set-name", "wakeonlan", "mtu", "renderer", "emit-lldp", "receive-checksum-offload"),
    *("transmit-checksum-offload", "tcp-segmentation-offload", "generic-segmentation-offload"),
    *("generic-receive-offload", "large-receive-offload", "openvswitch", "virtual-function-count"),
}


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan when a file of netplan configures the interface."""
    key, files = _entry(interface, host, ("ethernets",))
    if not key:
        return None
    _refuse_entry(bridge, host)
    found = plan(bridge, key, files, host.mac(interface), host.dump)
    same = networkd.same_client(interface, host)
    if same:  # netplan has no word for it
        found.files[f"/etc/systemd/network/10-netplan-{bridge}.network.d/salt-virt.conf"] = same
    return found


def tagged(vlan: Vlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan over a VLAN, in a file of its own, when netplan has the interface."""
    kinds = ("ethernets", "bonds")
    key, files = _entry(vlan.interface, host, kinds)
    if not key:
        return None
    _refuse_entry(vlan.bridge, host)
    known = [
        (tree["network"].get(kind) or {}).get(key) or {} for _path, tree in files for kind in kinds
    ]
    # the default one can be set for all of them, elsewhere
    renderers = [entry["renderer"] for entry in known if "renderer" in entry]
    both = {**_SILENT, **({"renderer": renderers[-1]} if renderers else {})}
    ours = {"interfaces": [vlan.port], "parameters": _PARAMETERS, **both}
    port = {"id": vlan.number, "link": key, **both}
    network = {"version": 2, "vlans": {vlan.port: port}, "bridges": {vlan.bridge: ours}}
    again = ("netplan", "apply")
    return BridgePlan(
        files={f"/etc/netplan/90-salt-virt-{vlan.bridge}.yaml": host.dump({"network": network})},
        before=(),
        apply=(again,),
        undo=(("ip", "link", "delete", vlan.bridge), vlan.gone, again),
    )


def _trees(host: BridgeHost) -> list[Read]:
    """The files of netplan. Raises Unsupported for one that netplan does not read either."""
    found = []
    for path in host.glob("etc/netplan/*.yaml"):
        try:
            tree = host.load(host.read(path)) or {}
        except ValueError as exc:
            raise Unsupported(f"{path} is no YAML: {plain.line(exc)}") from exc
        if not _is_netplan(tree):
            raise Unsupported(f"{path} has something else than netplan reads: correct it first")
        found.append((path, tree))
    return found


def _is_netplan(tree: object) -> bool:
    """Whether all that is read of a file are mappings, or nothing."""
    trees: list[Any] = [tree]
    for keys in (("network",), _KINDS, None, ("match",)):
        if not all(isinstance(one, dict) for one in trees):
            return False
        below = [one.get(key) for one in trees for key in (one if keys is None else keys)]
        trees = [one for one in below if one is not None]
    return all(isinstance(one, dict) for one in trees)


def _refuse_entry(bridge: str, host: BridgeHost) -> None:
    for path, tree in _trees(host):
        if bridge in ((tree.get("network") or {}).get("bridges") or {}):
            raise already(bridge, path)


def _entry(
    interface: str, host: BridgeHost, kinds: tuple[str, ...]
) -> tuple[str | None, list[Read]]:
    """(netplan's own name of the interface, [(path, parsed)] that have it); (None, []) for none."""
    mac = host.mac(interface)
    found: dict[str, list[Read]] = {}
    for path, tree in _trees(host):
        entries = [(tree.get("network") or {}).get(kind) or {} for kind in kinds]
        for key, about in (pair for entry in entries for pair in entry.items()):
            if _is(key, about or {}, interface, mac):
                found.setdefault(key, []).append((path, tree))
    if len(found) > 1:
        raise Unsupported(f"netplan's {' and '.join(sorted(found))} both are {interface}: by hand")
    return next(iter(found.items()), (None, []))


def _is(key: str, about: Mapping[str, Any], interface: str, mac: str) -> bool:
    match = about.get("match")
    if match is None:
        return key == interface
    return match.get("name") == interface or (
        bool(mac) and str(match.get("macaddress", "")).lower() == mac.lower()
    )


def plan(
    bridge: str, key: str, files: list[Read], mac: str, dump: Callable[[Any], str]
) -> BridgePlan:
    """key: netplan's own name of the interface. files: (path, parsed) that have it."""
    written: dict[str, str | None] = {}
    for number, (path, tree) in enumerate(files):
        network = dict(tree["network"])
        about = network["ethernets"][key] or {}
        cable = {k: v for k, v in about.items() if k in OF_THE_CABLE}
        moved = {k: v for k, v in about.items() if k not in OF_THE_CABLE}
        network["ethernets"] = {**network["ethernets"], key: {**cable, **_SILENT}}
        ours = moved
        if not number:
            ours = {"interfaces": [key], "macaddress": mac, "parameters": _PARAMETERS, **moved}
        network["bridges"] = {**(network.get("bridges") or {}), bridge: ours}
        written[path] = dump({**tree, "network": network})
    again = ("netplan", "apply")
    return BridgePlan(
        files=written,
        before=(),
        apply=(again,),
        undo=(("ip", "link", "delete", bridge), again),
    )


_SILENT = {"dhcp4": False, "dhcp6": False, "accept-ra": False, "link-local": []}
_PARAMETERS = {"stp": False, "forward-delay": 0}
