"""The host's libvirt must support the guest's domain type.

Salt's users write ``kvm`` for anything that runs in QEMU. A host without KVM runs it, too, but
slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


QEMU = {"kvm", "qemu"}


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    domain_type = request.hypervisor
    if domain_type in host.types or (domain_type in QEMU and QEMU.intersection(host.types)):
        return None
    return f"runs {', '.join(host.types) or 'nothing'}, not {domain_type}"
