"""Where an agent listens: an IP address, and nothing that has to be looked up."""

from __future__ import annotations

import ipaddress

from saltvirt import errors, units


def ip(where: str, given: object) -> str:
    """An IP address. Raises InvalidInput for a name: what resolves it may be a guest of the host
    that died."""
    try:
        return str(ipaddress.ip_address(given if isinstance(given, str) else ""))
    except ValueError as exc:
        shown = "nothing" if given is None else units.shown(given)
        raise errors.InvalidInput(
            f"{where}: address must be an IP address, not {shown}: a name may not be resolved "
            "while a host is down"
        ) from exc


def parse(text: str, port: int) -> tuple[str, int]:
    """(address, port) of ``ADDRESS``, ``ADDRESS:PORT``, ``[ADDRESS]:PORT``. Raises InvalidInput."""
    host, _, rest = text.rpartition(":")
    if not host or text.endswith("]") or (":" in host and not host.endswith("]")):
        host, rest = text, str(port)
    if not rest.isdigit() or not 0 < int(rest) < 65536 or not host.strip("[]"):
        raise errors.InvalidInput(f"{units.shown(text)} is neither ADDRESS nor ADDRESS:PORT")
    return ip(units.shown(text), host.strip("[]")), int(rest)
