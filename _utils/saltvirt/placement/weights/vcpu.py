"""The fraction of vCPUs that would be left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, Request
    from saltvirt.placement.policy import Policy


def score(host: Host, request: Request, policy: Policy) -> float:
    capacity = host.capacity_vcpus(policy)
    return (host.free_vcpus(policy) - request.vcpus) / capacity if capacity else 0.0
