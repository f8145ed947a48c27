"""Filters. Each is a module with ``reason(host, request, policy)``: why the host is rejected, or
None.

They are applied in this order: properties that cannot change first, capacity last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement.filters import (
    arch,
    bridges,
    cpu_model,
    disk,
    exclude,
    hypervisor,
    labels,
    maintenance,
    memory,
    networks,
    only,
    pools,
    profile,
    separate,
    vcpu,
)

if TYPE_CHECKING:
    from types import ModuleType

ALL = (
    only, exclude, maintenance, hypervisor, arch, labels, profile, cpu_model, bridges, networks,
    separate, vcpu, memory, disk, pools,
)  # fmt: skip


def name_of(module: ModuleType) -> str:
    """The name of a filter for tables and messages: ``memory`` for memory.py."""
    return module.__name__.rsplit(".", 1)[-1]
