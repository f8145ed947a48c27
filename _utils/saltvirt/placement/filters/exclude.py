"""Hosts that the operator took out of placement (``virt:exclude``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, Request
    from saltvirt.placement.policy import Policy


def reason(host: Host, request: Request, policy: Policy) -> str | None:
    return "excluded by virt:exclude" if host.name in policy.exclude else None
