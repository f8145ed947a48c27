"""The fraction of disk space that would be left, in the images folder or on the fullest storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    sizes = account.storage(request, host) or {host.images_store: 0}
    return min(_free_fraction(host, policy, store, size) for store, size in sizes.items())


def _free_fraction(host: Host, policy: PlacementPolicy, store: str, size_bytes: float) -> float:
    total = host.storage[store].total_bytes
    return (host.free_store_bytes(policy, store) - size_bytes) / total if total else 0.0
