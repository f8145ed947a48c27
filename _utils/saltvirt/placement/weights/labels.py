"""The fraction of the preferred labels that the host has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    if not request.prefer:
        return 0.0
    matched = sum(1 for key, value in request.prefer.items() if host.labels.get(key) == value)
    return matched / len(request.prefer)
