"""Guests of a group with ``group_policy: separate`` must not share a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.rights import confidential

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    if request.group_policy != "separate":
        return None
    for guest in host.guests:
        shared = set(guest.groups) & set(request.groups)
        if shared:
            other_guest = confidential.sensitive(guest.name)
            return f"already has {other_guest} of group {', '.join(sorted(shared))}"
    return None
