"""netplan, with systemd-networkd or NetworkManager behind it."""

from saltvirt.errors import Unsupported
from saltvirt.host.bridges.plan import Plan

# what belongs to the cable; everything else is about addresses and moves to the bridge
OF_THE_CABLE = {
    *("match", "set-name", "wakeonlan", "mtu", "renderer", "emit-lldp", "receive-checksum-offload"),
    *("transmit-checksum-offload", "tcp-segmentation-offload", "generic-segmentation-offload"),
    *("generic-receive-offload", "large-receive-offload", "openvswitch", "virtual-function-count"),
}


def find(bridge, interface, host):
    """The Plan when a file of netplan configures the interface."""
    mac = host.mac(interface)
    found = {}
    for path in host.glob("etc/netplan/*.yaml"):
        tree = host.load(host.read(path)) or {}
        ethernets = (tree.get("network") or {}).get("ethernets") or {}
        for key, about in ethernets.items():
            if _is(key, about or {}, interface, mac):
                found.setdefault(key, []).append((path, tree))
    if not found:
        return None
    if len(found) > 1:
        raise Unsupported(f"netplan's {' and '.join(sorted(found))} both are {interface}: by hand")
    (key, files), *_none = found.items()
    return plan(bridge, key, files, mac, host.dump)


def _is(key, about, interface, mac):
    match = about.get("match")
    if match is None:
        return key == interface
    return match.get("name") == interface or (
        bool(mac) and str(match.get("macaddress", "")).lower() == mac.lower()
    )


def plan(bridge, key, files, mac, dump):
    """key: netplan's own name of the interface. files: (path, parsed) that have it."""
    written = {}
    for number, (path, tree) in enumerate(files):
        network = dict(tree["network"])
        about = network["ethernets"][key] or {}
        cable = {k: v for k, v in about.items() if k in OF_THE_CABLE}
        moved = {k: v for k, v in about.items() if k not in OF_THE_CABLE}
        network["ethernets"] = {**network["ethernets"], key: {**cable, **_SILENT}}
        ours = {**network.get("bridges", {}).get(bridge, {}), **moved}
        if not number:
            ours = {"interfaces": [key], "macaddress": mac, "parameters": _PARAMETERS, **ours}
        network["bridges"] = {**network.get("bridges", {}), bridge: ours}
        written[path] = dump({**tree, "network": network})
    again = ("netplan", "apply")
    return Plan(
        files=written,
        before=(),
        apply=(again,),
        undo=(("ip", "link", "delete", bridge), again),
    )


_SILENT = {"dhcp4": False, "dhcp6": False, "accept-ra": False, "link-local": []}
_PARAMETERS = {"stp": False, "forward-delay": 0}
