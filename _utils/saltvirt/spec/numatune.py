"""What the user asked for under ``numatune``."""

from dataclasses import dataclass

from saltvirt.spec import values
from saltvirt.spec.base import Part, key, part

MODES = ("strict", "preferred", "interleave", "restrictive")


@dataclass
class NumaMemorySpec(Part):
    """Where the memory comes from."""

    mode: str | None = key(values.choice(*MODES))
    nodeset: str | None = key(values.cpuset)
    placement: str | None = key(values.choice("static", "auto"))


@dataclass
class NumaTuneSpec(Part):
    """``numatune``: for the whole guest, and for cells of it."""

    memory: NumaMemorySpec | None = key(part(NumaMemorySpec))
    memnodes: dict[int, NumaMemorySpec] | None = key(
        values.map_of(values.number(), part(NumaMemorySpec))
    )
