"""A host that has cached the image starts the guest sooner and puts no load on the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def score(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> float:
    if request.by_profile and host.needs:
        return 1.0 if host.needs.image_here else 0.0
    return 1.0 if request.image in host.images else 0.0
