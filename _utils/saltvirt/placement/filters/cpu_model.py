"""The host must support the guest's CPU model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    models = host.needs.cpu_models if host.needs else None
    if request.cpu_model and models is not None and request.cpu_model not in models:
        return f"does not support the CPU model {request.cpu_model}"
    return None
