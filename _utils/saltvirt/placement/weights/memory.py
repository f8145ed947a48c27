"""The fraction of memory that would be left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, Request
    from saltvirt.placement.policy import Policy


def score(host: Host, request: Request, policy: Policy) -> float:
    capacity = host.capacity_memory_kib(policy)
    _, wanted, _ = account.takes(request, host, policy)
    return (host.free_memory_kib(policy) - wanted) / capacity if capacity else 0.0
