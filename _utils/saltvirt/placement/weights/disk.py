"""The fraction of disk that would be left: in the images folder, or on what is left least of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, Request
    from saltvirt.placement.policy import Policy


def score(host: Host, request: Request, policy: Policy) -> float:
    wanted = account.storage(request, host) or {host.images_store: 0}
    return min(_left(host, policy, store, size) for store, size in wanted.items())


def _left(host: Host, policy: Policy, store: str, size: float) -> float:
    total = host.storage[store].total_bytes
    return (host.free_store_bytes(policy, store) - size) / total if total else 0.0
