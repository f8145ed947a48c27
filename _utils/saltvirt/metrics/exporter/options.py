"""The options of the engine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from saltvirt import errors, units

_PORTS = 65535


@dataclass(frozen=True)
class ServeOptions:
    """address: to listen on. port: TCP port. tls: use TLS. every_s: interval of the values that are
    not read for each request."""

    address: str
    port: int
    tls: bool
    every_s: float


def validate(address: object, port: object, tls: object, every_s: object) -> ServeOptions:
    """The ServeOptions. Raises InvalidInput with one line."""
    try:
        parsed = ipaddress.ip_address(address if isinstance(address, str) else "")
    except ValueError:
        raise _wrong("address", address, "an IP address, such as 127.0.0.1") from None
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= _PORTS:
        raise _wrong("port", port, f"a whole number from 1 to {_PORTS}")
    if not isinstance(tls, bool):
        raise _wrong("tls", tls, "True or False")
    fits = isinstance(every_s, (int, float)) and not isinstance(every_s, bool)
    if not fits or not 1 <= every_s <= 24 * 3600:  # type: ignore[operator]
        raise _wrong("every_s", every_s, "seconds, from 1 to 86400")
    return ServeOptions(str(parsed), port, tls, float(every_s))  # type: ignore[arg-type]


def _wrong(name: str, value: object, expected: str) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the engine virt_exporter: {name} must be {expected}, not {units.short_repr(value)}"
    )
