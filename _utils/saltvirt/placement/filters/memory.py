"""Memory that is promised, not the free memory of the moment; huge pages apart from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    _, wanted, pages = account.takes(request, host, policy)
    free = host.free_memory_kib(policy)
    if wanted > free:
        own = 0 if pages else account.promised_kib(request) * account.share(request, host, policy)
        return (
            f"{_words(own / 1024, (wanted - own) / 1024)}, {max(0, free / 1024):.0f} of "
            f"{host.capacity_memory_kib(policy) / 1024:.0f} MiB free"
        )
    for size, kib in pages.items():
        if size not in host.hugepages:
            return f"has no huge pages of {size} KiB" if size else "has no huge pages"
        free = host.free_hugepages_kib(policy, size)
        if kib > free:
            return (
                f"{kib / 1024:.0f} MiB of huge pages of {size} KiB wanted, "
                f"{max(0, free / 1024):.0f} of {host.hugepages[size] / 1024:.0f} MiB free"
            )
    return None


def _words(own: float, beside: float) -> str:
    """What is wanted, in MiB: of the guest itself, and beside it."""
    if own and beside >= 1:
        return f"{own:.0f} MiB of memory wanted and {beside:.0f} for QEMU"
    return f"{own + beside:.0f} MiB of memory wanted"
