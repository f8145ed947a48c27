"""The host must support the guest's architecture, if one is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    runs = host.arches or (host.arch,)
    if request.arch and request.arch not in runs:
        return f"runs {', '.join(runs) or 'no known architecture'}, not {request.arch}"
    return None
