"""The user's arguments in ``numatune``."""

from dataclasses import dataclass

from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested

MODES = ("strict", "preferred", "interleave", "restrictive")


@dataclass
class NumaMemorySpec(Spec):
    """Where the memory comes from."""

    mode: str | None = key(values.choice(*MODES))
    nodeset: str | None = key(values.cpuset)
    placement: str | None = key(values.choice("static", "auto"))


@dataclass
class NumaTuneSpec(Spec):
    """``numatune``: for the whole guest, and for cells of it."""

    memory: NumaMemorySpec | None = key(nested(NumaMemorySpec))
    memnodes: dict[int, NumaMemorySpec] | None = key(
        values.map_of(values.number(), nested(NumaMemorySpec))
    )
