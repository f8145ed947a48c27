"""A guest gets at most as many vCPUs as the host has CPUs; all guests together are limited by the
ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import units
from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    if request.vcpus > host.cpus:
        host_cpus = units.pluralize(host.cpus, "CPU")
        return f"{units.pluralize(request.vcpus, 'vCPU')} requested, the host has {host_cpus}"
    wanted_vcpus, _, _ = account.demand(request, host, policy)
    free = host.free_vcpus(policy)
    if wanted_vcpus > free:
        return (
            f"{units.pluralize(wanted_vcpus, 'vCPU')} requested, {max(0, free):.0f} of "
            f"{host.capacity_vcpus(policy):.0f} free"
        )
    return None
