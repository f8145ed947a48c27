"""Every storage pool that the guest uses must be there, with room by ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    wanted = {*request.pools, *(disk.pool for disk in request.disks if disk.pool)}
    missing = sorted(wanted - set(host.pools))
    if missing:
        return f"has no storage pool {', '.join(missing)}"
    lacks = account.lacks(request, host, policy)
    for name in sorted(wanted):
        if host.is_silent(host.pool_store(name)):
            return f"pool {name} is on {host.pool_store(name)}, which does not answer"
        if host.pool_store(name) in lacks:
            size, free = lacks[host.pool_store(name)]
            return f"{human_bytes(size)} wanted of pool {name}, {human_bytes(free)} free"
    return None
