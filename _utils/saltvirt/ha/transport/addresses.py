"""Addresses of agents: IP addresses only, because a name may not be resolvable."""

from __future__ import annotations

import ipaddress

from saltvirt import errors, units


def ip(label: str, value: object) -> str:
    """Validate an IP address. Raises InvalidInput for a name: the server that resolves it may be a
    guest of the failed host."""
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError as exc:
        shown = "nothing" if value is None else units.short_repr(value)
        raise errors.InvalidInput(
            f"{label}: address must be an IP address, not {shown}: a name may not be resolvable "
            "while a host is down"
        ) from exc


def parse(text: str, port: int) -> tuple[str, int]:
    """Return (address, port) of ``ADDRESS``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``. Raises
    InvalidInput."""
    host, _, port_text = text.rpartition(":")
    if not host or text.endswith("]") or (":" in host and not host.endswith("]")):
        host, port_text = text, str(port)
    if not units.is_number(port_text) or not 0 < int(port_text) < 65536 or not host.strip("[]"):
        raise errors.InvalidInput(f"{units.short_repr(text)} is neither ADDRESS nor ADDRESS:PORT")
    return ip(units.short_repr(text), host.strip("[]")), int(port_text)
