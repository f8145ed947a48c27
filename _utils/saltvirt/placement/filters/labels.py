"""The host must have the labels that the guest requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    for key, value in sorted(request.labels.items()):
        if key not in host.labels:
            return f"has no label {key}, {value!r} is wanted"
        if host.labels[key] != value:
            return f"label {key} is {host.labels[key]!r}, not {value!r}"
    return None
