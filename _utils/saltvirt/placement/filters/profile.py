"""The host must be able to create the guest: it knows the profiles, no file is in the way, and its
libvirt supports the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    return host.needs.problem if request.by_profile and host.needs else None
