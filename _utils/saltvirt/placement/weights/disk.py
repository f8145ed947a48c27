"""The fraction of disk that would be left: in the images folder, or on what is left least of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    wanted = account.storage(request, host) or {host.images_store: 0}
    return min(_left(host, policy, store, size) for store, size in wanted.items())


def _left(host: Host, policy: PlacementPolicy, store: str, size: float) -> float:
    total = host.storage[store].total_bytes
    return (host.free_store_bytes(policy, store) - size) / total if total else 0.0
