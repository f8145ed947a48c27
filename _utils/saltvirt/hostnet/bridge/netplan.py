"""netplan, with systemd-networkd or NetworkManager as renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt import sanitize
from saltvirt.errors import Unsupported
from saltvirt.hostnet.bridge import networkd
from saltvirt.hostnet.bridge.plan import BridgePlan, already_configured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan

# (path of a file, its content)
ParsedFile = tuple[str, dict[str, Any]]

_KINDS = ("ethernets", "bonds", "bridges")
# settings of the physical link; all others concern addresses and move to the bridge
OF_THE_CABLE = {
    *("match", "set-name", "wakeonlan", "mtu", "renderer", "emit-lldp", "receive-checksum-offload"),
    *("transmit-checksum-offload", "tcp-segmentation-offload", "generic-segmentation-offload"),
    *("generic-receive-offload", "large-receive-offload", "openvswitch", "virtual-function-count"),
}


def find(bridge: str, interface: str, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan if a file of netplan configures the interface."""
    key, files = _entry(interface, host, ("ethernets",))
    if not key:
        return None
    _refuse_entry(bridge, host)
    bridge_plan = plan(bridge, key, files, host.mac(interface), host.dump)
    same = networkd.same_client(interface, host)
    if same:  # netplan has no word for it
        bridge_plan.files[f"/etc/systemd/network/10-netplan-{bridge}.network.d/salt-virt.conf"] = (
            same
        )
    return bridge_plan


def tagged(vlan: BridgeVlan, host: BridgeHost) -> BridgePlan | None:
    """The BridgePlan on a VLAN, in a separate file, if netplan configures the interface."""
    kinds = ("ethernets", "bonds")
    key, files = _entry(vlan.interface, host, kinds)
    if not key:
        return None
    _refuse_entry(vlan.bridge, host)
    entries = [
        (tree["network"].get(kind) or {}).get(key) or {} for _path, tree in files for kind in kinds
    ]
    # the default renderer can be set for all of them elsewhere
    renderers = [entry["renderer"] for entry in entries if "renderer" in entry]
    common = {**_SILENT, **({"renderer": renderers[-1]} if renderers else {})}
    bridge_entry = {"interfaces": [vlan.port], "parameters": _PARAMETERS, **common}
    port = {"id": vlan.number, "link": key, **common}
    network = {"version": 2, "vlans": {vlan.port: port}, "bridges": {vlan.bridge: bridge_entry}}
    reapply = ("netplan", "apply")
    return BridgePlan(
        files={f"/etc/netplan/90-salt-virt-{vlan.bridge}.yaml": host.dump({"network": network})},
        before=(),
        apply=(reapply,),
        undo=(("ip", "link", "delete", vlan.bridge), vlan.delete_command, reapply),
    )


def _trees(host: BridgeHost) -> list[ParsedFile]:
    """The files of netplan. Raises Unsupported for one that netplan cannot read."""
    trees = []
    for path in host.glob("etc/netplan/*.yaml"):
        try:
            tree = host.load(host.read(path)) or {}
        except ValueError as exc:
            raise Unsupported(f"{path} is no YAML: {sanitize.one_line(exc)}") from exc
        if not _is_netplan(tree):
            raise Unsupported(f"{path} is not valid netplan configuration: correct it first")
        trees.append((path, tree))
    return trees


def _is_netplan(tree: object) -> bool:
    """Whether everything that is read from a file is a mapping or empty."""
    trees: list[Any] = [tree]
    for keys in (("network",), _KINDS, None, ("match",)):
        if not all(isinstance(node, dict) for node in trees):
            return False
        below = [node.get(key) for node in trees for key in (node if keys is None else keys)]
        trees = [node for node in below if node is not None]
    return all(isinstance(node, dict) for node in trees)


def _refuse_entry(bridge: str, host: BridgeHost) -> None:
    for path, tree in _trees(host):
        if bridge in ((tree.get("network") or {}).get("bridges") or {}):
            raise already_configured(bridge, path)


def _entry(
    interface: str, host: BridgeHost, kinds: tuple[str, ...]
) -> tuple[str | None, list[ParsedFile]]:
    """(netplan's name of the interface, [(path, parsed file)] with it); (None, []) if there is
    none."""
    mac = host.mac(interface)
    matches: dict[str, list[ParsedFile]] = {}
    for path, tree in _trees(host):
        entries = [(tree.get("network") or {}).get(kind) or {} for kind in kinds]
        for key, settings in (pair for entry in entries for pair in entry.items()):
            if _is(key, settings or {}, interface, mac):
                matches.setdefault(key, []).append((path, tree))
    if len(matches) > 1:
        raise Unsupported(
            f"netplan's {' and '.join(sorted(matches))} both match {interface}: create the "
            "bridge yourself"
        )
    return next(iter(matches.items()), (None, []))


def _is(key: str, settings: Mapping[str, Any], interface: str, mac: str) -> bool:
    match = settings.get("match")
    if match is None:
        return key == interface
    return match.get("name") == interface or (
        bool(mac) and str(match.get("macaddress", "")).lower() == mac.lower()
    )


def plan(
    bridge: str, key: str, files: list[ParsedFile], mac: str, dump: Callable[[Any], str]
) -> BridgePlan:
    """The BridgePlan. key: netplan's name of the interface. files: (path, parsed file) with it."""
    new_files: dict[str, str | None] = {}
    for number, (path, tree) in enumerate(files):
        network = dict(tree["network"])
        settings = network["ethernets"][key] or {}
        cable = {k: v for k, v in settings.items() if k in OF_THE_CABLE}
        bridge_settings = {k: v for k, v in settings.items() if k not in OF_THE_CABLE}
        network["ethernets"] = {**network["ethernets"], key: {**cable, **_SILENT}}
        bridge_entry = bridge_settings
        if not number:
            bridge_entry = {
                "interfaces": [key],
                "macaddress": mac,
                "parameters": _PARAMETERS,
                **bridge_settings,
            }
        network["bridges"] = {**(network.get("bridges") or {}), bridge: bridge_entry}
        new_files[path] = dump({**tree, "network": network})
    reapply = ("netplan", "apply")
    return BridgePlan(
        files=new_files,
        before=(),
        apply=(reapply,),
        undo=(("ip", "link", "delete", bridge), reapply),
    )


_SILENT = {"dhcp4": False, "dhcp6": False, "accept-ra": False, "link-local": []}
_PARAMETERS = {"stp": False, "forward-delay": 0}
