"""Adapt the network configuration in a copy of a guest: its MAC addresses and its static addresses.

Configuration that is bound to a MAC address of the original is bound to the copy's. Two machines
cannot have the same address: an interface whose address Salt Virt or cloud-init has configured uses
DHCP in the copy. Manually written configuration keeps its addresses, and is reported.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.seed import addresses

if TYPE_CHECKING:
    from saltvirt.seed.tree import GuestFiles

_MAC = re.compile(
    rb"(?<![0-9A-Za-z:.-])(?:[0-9A-Fa-f]{2}([:-]))(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"
    rb"(?![0-9A-Za-z:.-])"
)
_OWN_NAMES = re.compile(r"salt-virt-|cloud-init")
_MARKERS = (b"# Written by Salt Virt ", b"# Created by cloud-init")
_HEAD = 4096  # where a file says who wrote it
MAX_FILES, MAX_BYTES = 1000, 8 * 1024**2
# leases of DHCP clients, which would request the address of the original
_LEASES = {
    "/var/lib/dhcp": "dhclient*",
    "/var/lib/dhclient": "*lease*",
    "/var/lib/NetworkManager": "*lease*",
    "/var/lib/dhcpcd": "*lease*",
    "/var/lib/wicked": "lease-*",
}


@dataclass(frozen=True)
class _ConfigFolder:
    """A folder with configuration. names: of its files. mode: of a changed file. static: whether a
    text contains an address. by_dhcp: returns the text with DHCP instead."""

    folder: str
    names: str
    mode: int = 0o644
    static: Callable[[str], bool] | None = None
    by_dhcp: Callable[[str], str] | None = None


def _json_netplan(text: str) -> str:
    """Replace cloud-init's configuration: each interface that it matches by MAC address uses DHCP,
    or each network card if it matches none."""
    macs = sorted({mac_match.group().decode() for mac_match in _MAC.finditer(text.encode())})
    matches = [{"macaddress": mac} for mac in macs] or [{"name": "e*"}]
    ethernets = {f"nic{n}": {"match": match, "dhcp4": True} for n, match in enumerate(matches)}
    network: dict[str, object] = {"version": 2, "ethernets": ethernets}
    if re.search(r"(?m)^\s*renderer:\s*[\"']?NetworkManager", text):
        network["renderer"] = "NetworkManager"
    head = "# Written by Salt Virt when this guest was created, in place of cloud-init's.\n"
    return head + json.dumps({"network": network}) + "\n"


_CONFIG_FOLDERS = (
    _ConfigFolder("/etc/netplan", "*.yaml", 0o600, addresses.in_netplan, _json_netplan),
    *(
        _ConfigFolder("/etc/systemd/network", names, 0o644, addresses.in_networkd,
        addresses.networkd)
        for names in ("*.network", "*.link", "*.netdev")
    ),
    _ConfigFolder(
        "/etc/NetworkManager/system-connections", "*", 0o600,
        addresses.in_keyfile, addresses.keyfile,
    ),
    *(
        _ConfigFolder(folder, names, 0o644, addresses.in_ifupdown, addresses.ifupdown)
        for folder, names in (("/etc/network", "interfaces"), ("/etc/network/interfaces.d", "*"))
    ),
    *(
        _ConfigFolder(folder, "ifcfg-*", 0o644, addresses.in_ifcfg, addresses.ifcfg)
        for folder in ("/etc/sysconfig/network-scripts", "/etc/sysconfig/network")
    ),
    _ConfigFolder("/etc/udev/rules.d", "*.rules"),
    _ConfigFolder("/etc/cloud/cloud.cfg.d", "*.cfg", 0o600),
)  # fmt: skip


def rebind(tree: GuestFiles, macs: Mapping[str, str]) -> list[str]:
    """Change the configuration and remove DHCP leases. Returns messages for the operator.

    macs: each MAC address of the original to the copy's. Raises SeedFailed.
    """
    if not macs:
        return []
    notes, new = [], {old.lower().encode(): mac.lower().encode() for old, mac in macs.items()}
    for config_folder, path, content in _files(tree):
        changed = _MAC.sub(lambda match: _replace_mac(match, new), content)
        try:
            text = changed.decode()
        except UnicodeDecodeError:
            text = ""
        loopback = path.endswith("/ifcfg-lo")  # each machine has its address
        if (
            config_folder.static
            and config_folder.by_dhcp
            and config_folder.static(text)
            and not loopback
        ):
            if _is_generated(path, content):
                changed = config_folder.by_dhcp(text).encode()
                notes.append(
                    f"{path}: the static addresses remain with the original; the copy's "
                    "interface uses DHCP"
                )
            else:
                notes.append(
                    f"{path} gives the copy the same static address as the original: change it"
                )
        if changed != content:
            tree.write(path, changed, config_folder.mode)
    for folder, names in _LEASES.items():
        for name in fnmatch.filter(tree.names(folder), names):
            if tree.is_file(f"{folder}/{name}"):
                tree.remove(f"{folder}/{name}")
    return notes


def _files(tree: GuestFiles) -> Iterator[tuple[_ConfigFolder, str, bytes]]:
    count = size = 0
    for config_folder in _CONFIG_FOLDERS:
        for name in fnmatch.filter(tree.names(config_folder.folder), config_folder.names):
            path = f"{config_folder.folder}/{name}"
            if not tree.is_file(path):  # such as a link to /dev/null
                continue
            content = tree.read(path)
            count, size = count + 1, size + len(content)
            if count > MAX_FILES or size > MAX_BYTES:
                raise errors.SeedFailed(
                    f"{config_folder.folder}: the network configuration has more than "
                    f"{MAX_FILES} files or {MAX_BYTES} bytes"
                )
            yield config_folder, path, content


def _replace_mac(match: re.Match[bytes], macs: Mapping[bytes, bytes]) -> bytes:
    separator = match.group(1)
    mac = macs.get(match.group().lower().replace(separator, b":"))
    return mac.replace(b":", separator) if mac else match.group()


def _is_generated(path: str, content: bytes) -> bool:
    """Whether Salt Virt or cloud-init wrote the file."""
    head = content[:_HEAD]
    return bool(_OWN_NAMES.search(path.rpartition("/")[2])) or any(
        marker in head for marker in _MARKERS
    )
