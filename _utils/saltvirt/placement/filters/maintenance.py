"""A host that is being drained gets nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, Request
    from saltvirt.placement.policy import Policy


def reason(host: Host, request: Request, policy: Policy) -> str | None:
    return f"in maintenance: {host.maintenance}" if host.maintenance else None
