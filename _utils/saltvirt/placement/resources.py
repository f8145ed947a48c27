"""The demand of guests: vCPUs, memory and huge pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.placement.policy import PlacementPolicy


# containers, which run without QEMU
CONTAINERS = {"lxc", "openvz", "vz"}


class Demand(Protocol):
    """The demand of a guest: a ``facts.Guest`` or a ``facts.PlacementRequest``."""

    @property
    def vcpus(self) -> int: ...
    @property
    def memory_kib(self) -> int: ...
    @property
    def max_memory_kib(self) -> int: ...
    @property
    def page_kib(self) -> int | None: ...
    @property
    def type(self) -> str | None: ...


@dataclass
class ResourceSum:
    """What some guests take: ``kib`` of normal memory, and ``pages`` of huge pages (size to KiB).

    machines, machine_vcpus, machine_kib: of the guests that run in QEMU.
    """

    vcpus: int = 0
    kib: int = 0
    pages: dict[int, int] = field(default_factory=dict)
    machines: int = 0
    machine_vcpus: int = 0
    machine_kib: int = 0

    def add(self, guest: Demand) -> None:
        """Add a facts.Guest or PlacementRequest."""
        memory_kib = promised_kib(guest)
        self.vcpus += guest.vcpus
        if guest.page_kib is None:
            self.kib += memory_kib
        else:
            self.pages[guest.page_kib] = self.pages.get(guest.page_kib, 0) + memory_kib
        if guest.type not in CONTAINERS:
            self.machines += 1
            self.machine_vcpus += guest.vcpus
            self.machine_kib += memory_kib


def promised_kib(guest: Demand) -> int:
    """The memory that a guest may have, including what it may get while it runs."""
    return max(guest.memory_kib, guest.max_memory_kib)


def total(guests: Iterable[Demand]) -> ResourceSum:
    """The ResourceSum of guests."""
    resources = ResourceSum()
    for guest in guests:
        resources.add(guest)
    return resources


def vcpus(resources: ResourceSum, _policy: PlacementPolicy) -> int:
    """The vCPUs of a ResourceSum."""
    return resources.vcpus


def memory_kib(resources: ResourceSum, policy: PlacementPolicy) -> float:
    """The memory of a ResourceSum outside huge pages, including the overhead of QEMU."""
    return (
        resources.kib
        + resources.machines * policy.overhead_kib
        + resources.machine_vcpus * policy.overhead_vcpu_kib
        + resources.machine_kib * policy.overhead_ratio
    )


def longest(mounts: Collection[str], path: str | None) -> str | None:
    """The mount point of a path, or None."""
    while path:
        if path in mounts:
            return path
        path = path.rpartition("/")[0] or ("/" if path != "/" else "")
    return None
