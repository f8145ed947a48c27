"""Each filter is a module with ``reason(host, request, policy)``: why not, or None.

The order is the one in which they are asked: what cannot change first, numbers last.
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
    """``memory`` for this folder's memory.py: the word for tables and messages."""
    return module.__name__.rsplit(".", 1)[-1]
