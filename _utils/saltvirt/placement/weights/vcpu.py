"""The fraction of vCPUs that would be left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    capacity = host.capacity_vcpus(policy)
    return (host.free_vcpus(policy) - request.vcpus) / capacity if capacity else 0.0
