"""The host must have every bridge that the guest uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    missing = sorted(request.bridges - host.bridges)
    return f"has no bridge {', '.join(missing)}" if missing else None
