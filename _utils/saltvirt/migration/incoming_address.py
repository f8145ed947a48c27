"""The address at which a host's QEMU receives guests.

Each host declares it in ``virt:migration:address``: an address, a name, a network (``10.9.0.0/24``:
its own address in it), or a list of those, of which the first match counts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from saltvirt import settings
from saltvirt.errors import InvalidInput

_ENTRY = re.compile(r"[A-Za-z0-9._:/%-]{1,253}")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*|::[0-9a-f:]*")


def _entries(setting: Any) -> list[str]:
    if setting in (None, ""):
        return []
    entries = setting if isinstance(setting, (list, tuple)) else [setting]
    for entry in entries:
        if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
            raise settings.invalid(
                "migration:address", entry, "an address, a name, a network or a list of those"
            )
    return list(entries)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError as exc:
        raise InvalidInput(f"virt:migration:address: {text!r} is not a network: {exc}") from exc


def advertised(setting: Any, local_addresses: Callable[[str | None], Any]) -> str | None:
    """Return the address that a host declares; None without one.

    setting: its ``virt:migration:address``. local_addresses: returns the addresses of a name, or
    with None all of the host; an address that is not the host's own is ignored.
    """
    for entry in _entries(setting):
        network = _network(entry)
        if network is None:
            matches = [entry] if local_addresses(entry) else []
        else:
            matches = [a for a in local_addresses(None) if ipaddress.ip_address(a) in network]
        if matches:
            return str(matches[0])
    return None


def target_address(
    reported: Any, setting: Any, local_addresses: Callable[[str | None], Any]
) -> str | None:
    """Return the address to which the source sends a guest: the one that the target reported,
    otherwise an address in the source's own configuration that is not its own. None: use the
    target's name."""
    if not reported:
        names = (entry for entry in _entries(setting) if _network(entry) is None)
        return next((entry for entry in names if not local_addresses(entry)), None)
    if not _ADDRESS.fullmatch(str(reported)):
        raise InvalidInput(
            f"the target's address {str(reported)!r} is neither an address nor a name"
        )
    return str(reported)


def uri(address: str | None) -> str | None:
    """Return libvirt's URI for the address, or None."""
    if not address:
        return None
    return f"tcp://[{address}]" if ":" in str(address) else f"tcp://{address}"
