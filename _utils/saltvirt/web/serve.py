"""Run the proxy as an engine of the master."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable
from typing import Any

from saltvirt import errors, units
from saltvirt.console.master import tickets
from saltvirt.console.master.tickets import Ticket
from saltvirt.operations.access import access_check
from saltvirt.web.cluster_view import ClusterView
from saltvirt.web.proxy import Proxy, ProxyRules

PORT = 8003
VERB, PAGE_VERB = "ticket", "watch"


def run(
    opts: dict[str, Any],
    address: object,
    port: object,
    origins: object,
    disarmed: Callable[[], bool],
) -> None:
    """Serve until the process ends. disarmed: whether high availability is disarmed. Raises
    InvalidInput, OperationFailed."""
    endpoint = _address(address), _port(port)
    view = ClusterView(opts, disarmed)
    rules = ProxyRules(
        lambda secret: tickets.redeem(opts, secret),
        lambda ticket: denial_reason(opts, ticket),
        view,
        _origins(origins),
    )
    with contextlib.closing(view):
        Proxy(rules).run(*endpoint)


def denial_reason(opts: dict[str, Any], ticket: Ticket) -> str | None:
    """Why a ticket's user may not use it, according to the current virt:rights and owners; None if
    the user may."""
    if ticket.user is None:
        return None
    try:
        if ticket.connection is None:
            may = access_check.may_ever(opts, ticket.user, PAGE_VERB)
            return None if may else f"{ticket.user} may no longer watch the cloud"
        if access_check.may_still(
            opts, ticket.user, VERB, ticket.connection.guest, ticket.connection.uuid
        ):
            return None
    except errors.VirtError as exc:
        return exc.text
    return f"{ticket.user} may no longer connect to {ticket.connection.guest}"


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
    origins = value if isinstance(value, (list, tuple)) else [value] if value else []
    for origin in origins:
        if not isinstance(origin, str) or not origin.startswith(("https://", "http://")):
            raise _wrong(
                "origins", "a list of addresses such as https://master.example.com:8000", value
            )
    return tuple(origins)


def _wrong(name: str, expected: str, value: object) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the engine virt_reach: {name} must be {expected}, not {units.short_repr(value)}"
    )
