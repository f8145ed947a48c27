"""Every storage pool that the guest uses must exist and have enough space, multiplied by the
ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    pool_names = {*request.pools, *(disk.pool for disk in request.disks if disk.pool)}
    missing = sorted(pool_names - set(host.pools))
    if missing:
        return f"has no storage pool {', '.join(missing)}"
    shortfalls = account.shortfalls(request, host, policy)
    for name in sorted(pool_names):
        if host.is_silent(host.pool_store(name)):
            return f"pool {name} is on {host.pool_store(name)}, which does not respond"
        if host.pool_store(name) in shortfalls:
            size, free = shortfalls[host.pool_store(name)]
            return f"{human_bytes(size)} requested of pool {name}, {human_bytes(free)} free"
    return None
