"""The fraction of memory that would be left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    capacity = host.capacity_memory_kib(policy)
    _, wanted_kib, _ = account.demand(request, host, policy)
    return (host.free_memory_kib(policy) - wanted_kib) / capacity if capacity else 0.0
