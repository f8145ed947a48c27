"""The proxy as a master's engine runs it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from saltvirt import errors, units
from saltvirt.operations import allowed
from saltvirt.reachmaster import tickets
from saltvirt.reachmaster.proxy import Proxy, Rules
from saltvirt.reachmaster.tickets import Ticket
from saltvirt.reachmaster.view import View

PORT = 8003
VERB, PAGES = "ticket", "watch"


def run(
    opts: dict[str, Any],
    address: object,
    port: object,
    origins: object,
    disarmed: Callable[[], bool],
) -> None:
    """Until the process ends. disarmed: is high availability? Raises InvalidInput,
    OperationFailed."""
    where = _address(address), _port(port)
    rules = Rules(
        lambda secret: tickets.redeemed(opts, secret),
        lambda ticket: why_not(opts, ticket),
        View(opts, disarmed),
        _origins(origins),
    )
    Proxy(rules).run(*where)


def why_not(opts: dict[str, Any], ticket: Ticket) -> str | None:
    """Why its user may not use it, by what virt:rights and the owners are now."""
    if ticket.user is None:
        return None
    try:
        if ticket.way is None:
            may = allowed.may_ever(opts, ticket.user, PAGES)
            return None if may else f"{ticket.user} may not watch any more"
        if allowed.may_still(opts, ticket.user, VERB, ticket.way.guest, ticket.way.uuid):
            return None
    except errors.VirtError as exc:
        return exc.text
    return f"{ticket.user} may not reach {ticket.way.guest} any more"


def _address(value: object) -> str:
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise _wrong("address", "an IP address", value) from None


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise _wrong("port", "a number from 1 to 65535", value)
    return value


def _origins(value: object) -> tuple[str, ...]:
    found = value if isinstance(value, (list, tuple)) else [value] if value else []
    for one in found:
        if not isinstance(one, str) or not one.startswith(("https://", "http://")):
            raise _wrong("origins", "a list of such as https://master.example.com:8000", value)
    return tuple(found)


def _wrong(name: str, wanted: str, value: object) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the engine virt_reach: {name} must be {wanted}, not {units.shown(value)}"
    )
