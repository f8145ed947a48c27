"""What the user asked for under ``numatune``."""

from dataclasses import dataclass

from saltvirt.spec import values as v
from saltvirt.spec.base import Part, key, part

MODES = ("strict", "preferred", "interleave", "restrictive")


@dataclass
class NumaMemorySpec(Part):
    """Where the memory comes from."""

    mode: str | None = key(v.choice(*MODES))
    nodeset: str | None = key(v.cpuset)
    placement: str | None = key(v.choice("static", "auto"))


@dataclass
class NumaTuneSpec(Part):
    """``numatune``: for the whole guest, and for cells of it."""

    memory: NumaMemorySpec | None = key(part(NumaMemorySpec))
    memnodes: dict[int, NumaMemorySpec] | None = key(v.map_of(v.number(), part(NumaMemorySpec)))
