"""Keep guests of a group on different hosts, or together (``group_policy: gather``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    groups = set(request.groups)
    group_members = sum(1 for guest in host.guests if groups & set(guest.groups))
    return float(group_members if request.group_policy == "gather" else -group_members)
