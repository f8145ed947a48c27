"""The user's arguments in ``numatune``."""

from dataclasses import dataclass

from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested
from saltvirt.xml.domain.numatune import NumaTune

MODES = ("strict", "preferred", "interleave", "restrictive")


@dataclass
class NumaMemorySpec(Spec):
    """The host's NUMA nodes that provide the memory."""

    mode: str | None = key(values.choice(*MODES), xml=NumaTune.mode)
    nodeset: str | None = key(values.cpuset, xml=NumaTune.nodeset)
    placement: str | None = key(values.choice("static", "auto"), xml=NumaTune.placement)


@dataclass
class NumaTuneSpec(Spec):
    """``numatune``: for the whole guest, and for cells of it."""

    memory: NumaMemorySpec | None = key(nested(NumaMemorySpec), xml=NumaMemorySpec)
    memnodes: dict[int, NumaMemorySpec] | None = key(
        values.map_of(values.number(), nested(NumaMemorySpec))
    )
