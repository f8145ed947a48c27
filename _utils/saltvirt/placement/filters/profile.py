"""What the host itself said against the guest: a profile that it does not know, a file in the
way, a device that its libvirt lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    return host.needs.problem if request.by_profile and host.needs else None
