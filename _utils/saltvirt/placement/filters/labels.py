"""The host must have the labels that the guest requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    for key, value in sorted(request.labels.items()):
        if key not in host.labels:
            return f"lacks the label {key}={value!r}"
        if host.labels[key] != value:
            return f"has the label {key}={host.labels[key]!r}, not {value!r}"
    return None
