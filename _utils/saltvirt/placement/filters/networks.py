"""Every libvirt network that the guest uses must exist and be active."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    missing = sorted(request.networks - host.networks)
    return f"has no active libvirt network {', '.join(missing)}" if missing else None
