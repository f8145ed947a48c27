"""The host's NUMA nodes of the guest's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import is_given, merge, put
from saltvirt.spec.base import value_or_none
from saltvirt.xml.domain.numatune import MemNode

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.numatune import NumaMemorySpec, NumaTuneSpec
    from saltvirt.xml.domain.domain import Domain


def apply(spec: NumaTuneSpec | None, domain: Domain, context: Context) -> None:
    """Apply a NumaTuneSpec to a domain."""
    del context
    if spec is None:
        return
    tune = domain.numatune
    put(tune, spec)
    memory = value_or_none(spec.memory)
    if memory and is_given(memory.nodeset) and memory.placement is None:
        tune.placement = None  # libvirt drops the nodes if placement is auto
    merge(tune, "memnodes", spec.memnodes, MemNode, "cellid", _node)


def _node(node: MemNode, spec: NumaMemorySpec) -> None:
    put(node, spec, "mode", "nodeset")
