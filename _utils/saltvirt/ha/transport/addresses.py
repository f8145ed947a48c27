"""Where an agent listens: an IP address, and nothing that has to be looked up."""

from __future__ import annotations

import ipaddress

from saltvirt import errors, units


def ip(label: str, value: object) -> str:
    """An IP address. Raises InvalidInput for a name: what resolves it may be a guest of the host
    that died."""
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError as exc:
        shown = "nothing" if value is None else units.short_repr(value)
        raise errors.InvalidInput(
            f"{label}: address must be an IP address, not {shown}: a name may not be resolved "
            "while a host is down"
        ) from exc


def parse(text: str, port: int) -> tuple[str, int]:
    """(address, port) of ``ADDRESS``, ``ADDRESS:PORT``, ``[ADDRESS]:PORT``. Raises InvalidInput."""
    host, _, port_text = text.rpartition(":")
    if not host or text.endswith("]") or (":" in host and not host.endswith("]")):
        host, port_text = text, str(port)
    if not port_text.isdigit() or not 0 < int(port_text) < 65536 or not host.strip("[]"):
        raise errors.InvalidInput(f"{units.short_repr(text)} is neither ADDRESS nor ADDRESS:PORT")
    return ip(units.short_repr(text), host.strip("[]")), int(port_text)
