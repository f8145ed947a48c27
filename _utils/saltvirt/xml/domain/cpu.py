"""The model of the guest's CPU."""

from __future__ import annotations

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, KIB, ON_OFF, YES_NO


class CpuFeature(Element):
    """``<feature>``: one CPU feature and its policy."""

    TAG = "feature"

    policy = Prop("@policy")
    name = Prop("@name")


class Sibling(Element):
    """``<sibling>``: the distance to another NUMA cell."""

    TAG = "sibling"

    id = Prop("@id", INT)
    value = Prop("@value", INT)


class Cell(Element):
    """``<cell>``: one NUMA cell of the guest."""

    TAG = "cell"

    id = Prop("@id", INT)
    cpus = Prop("@cpus")
    memory = Prop("@memory", INT)
    unit = Prop("@unit")
    memory_access = Prop("@memAccess")
    discard = Prop("@discard", YES_NO)
    distances = Children("distances/sibling", Sibling)

    @property
    def memory_kib(self) -> int | None:
        """The cell's memory, in KiB."""
        return KIB.scaled(self.memory, self.unit)

    @memory_kib.setter
    def memory_kib(self, value: int | None) -> None:
        self.memory = value
        self.unit = "KiB" if value is not None else None


class Cpu(Element):
    """``<cpu>``."""

    TAG = "cpu"

    mode = Prop("@mode")
    match = Prop("@match")
    check = Prop("@check")
    migratable = Prop("@migratable", ON_OFF)
    model = Prop("model")
    fallback = Prop("model/@fallback")
    vendor_id = Prop("model/@vendor_id")
    vendor = Prop("vendor")
    sockets = Prop("topology/@sockets", INT)
    dies = Prop("topology/@dies", INT)
    clusters = Prop("topology/@clusters", INT)
    cores = Prop("topology/@cores", INT)
    threads = Prop("topology/@threads", INT)
    cache_level = Prop("cache/@level", INT)
    cache_mode = Prop("cache/@mode")
    features = Children("feature", CpuFeature)
    cells = Children("numa/cell", Cell)
