"""vCPUs: one guest never gets more than the host has; all together not more than by ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    if request.vcpus > host.cpus:
        return f"{request.vcpus} vCPUs wanted, the host has {host.cpus} CPUs"
    wanted, _, _ = account.takes(request, host, policy)
    free = host.free_vcpus(policy)
    if wanted > free:
        return (
            f"{wanted:g} vCPUs wanted, {max(0, free):.0f} of {host.capacity_vcpus(policy):.0f} free"
        )
    return None
