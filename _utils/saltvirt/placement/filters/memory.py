"""The host must have enough memory that is not promised to guests, and enough huge pages. The free
memory of the moment does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account, resources

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    _, wanted_kib, pages = account.demand(request, host, policy)
    free = host.free_memory_kib(policy)
    if wanted_kib > free:
        guest_kib = (
            0 if pages else resources.promised_kib(request) * account.share(request, host, policy)
        )
        return (
            f"{_describe(guest_kib / 1024, (wanted_kib - guest_kib) / 1024)}, "
            f"{max(0, free / 1024):.0f} of {host.capacity_memory_kib(policy) / 1024:.0f} MiB free"
        )
    for size, kib in pages.items():
        if size not in host.hugepages:
            return f"has no huge pages of {size} KiB" if size else "has no huge pages"
        free = host.free_hugepages_kib(policy, size)
        if kib > free:
            return (
                f"{kib / 1024:.0f} MiB of huge pages of {size} KiB requested, "
                f"{max(0, free / 1024):.0f} of {host.hugepages[size] / 1024:.0f} MiB free"
            )
    return None


def _describe(guest_mib: float, overhead_mib: float) -> str:
    """The requested memory in MiB: of the guest, and the overhead."""
    if guest_mib and overhead_mib >= 1:
        return f"{guest_mib:.0f} MiB of memory requested and {overhead_mib:.0f} for QEMU"
    return f"{guest_mib + overhead_mib:.0f} MiB of memory requested"
