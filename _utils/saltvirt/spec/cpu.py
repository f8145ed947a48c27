"""What the user asked for of the guest's CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values as v
from saltvirt.spec.base import REMOVE, Part, given, key, part
from saltvirt.spec.cputune import CpuTuneSpec

POLICIES = ("force", "require", "optional", "disable", "forbid")


@dataclass
class VcpuSpec(Part):
    """The state of one virtual CPU."""

    enabled: bool | None = key(v.boolean)
    hotpluggable: bool | None = key(v.boolean)
    order: int | None = key(v.count)


@dataclass
class ModelSpec(Part):
    """The CPU model by name."""

    name: str | None = key(v.word)
    fallback: str | None = key(v.choice("allow", "forbid"))
    vendor_id: str | None = key(v.text)

    def check(self, what: str) -> None:
        vendor_id = given(self.vendor_id)
        if vendor_id and (len(vendor_id) != 12 or "," in vendor_id):
            raise InvalidInput(f"{what}:vendor_id {vendor_id!r} must be of 12 characters, no comma")


def _model(value: Any, what: str) -> ModelSpec:
    return ModelSpec.parse({"name": value} if isinstance(value, str) else value, what)


@dataclass
class TopologySpec(Part):
    """Sockets, dies, clusters, cores, threads."""

    sockets: int | None = key(v.count)
    dies: int | None = key(v.count)
    clusters: int | None = key(v.count)
    cores: int | None = key(v.count)
    threads: int | None = key(v.count)

    def total(self) -> int | None:
        """The number of CPUs it makes, or None where a part is not given."""
        sockets, cores, threads = given(self.sockets), given(self.cores), given(self.threads)
        if not (sockets and cores and threads):
            return None
        groups = (given(self.dies) or 1) * (given(self.clusters) or 1)
        return sockets * groups * cores * threads


@dataclass
class CacheSpec(Part):
    """The CPU cache that the guest sees."""

    level: int | None = key(v.number(1, 3))
    mode: str | None = key(v.choice("emulate", "passthrough", "disable"))


@dataclass
class CellSpec(Part):
    """One NUMA cell of the guest."""

    cpus: str | None = key(v.cpuset)
    memory_kib: int | None = key(v.kib, name="memory")
    discard: bool | None = key(v.boolean)
    memory_access: str | None = key(v.choice("shared", "private"), name="memAccess")
    distances: dict[int, int] | None = key(v.map_of(v.number(), v.number(10, 255)))


@dataclass
class CpuSpec(Part):
    """The ``cpu`` argument."""

    maximum: int | None = key(v.count)
    current: int | None = key(v.count)
    placement: str | None = key(v.choice("static", "auto"))
    cpuset: str | None = key(v.cpuset)
    vcpus: dict[int, VcpuSpec] | None = key(v.map_of(v.number(), part(VcpuSpec)))
    match: str | None = key(v.choice("minimum", "exact", "strict"))
    mode: str | None = key(v.choice("custom", "host-model", "host-passthrough", "maximum"))
    check_: str | None = key(v.choice("none", "partial", "full"), name="check")
    migratable: bool | None = key(v.boolean)
    vendor: str | None = key(v.word)
    model: ModelSpec | None = key(_model)
    topology: TopologySpec | None = key(part(TopologySpec))
    cache: CacheSpec | None = key(part(CacheSpec))
    features: dict[str, str] | None = key(v.map_of(v.word, v.choice(*POLICIES)))
    numa: dict[int, CellSpec] | None = key(v.map_of(v.number(), part(CellSpec)))
    tuning: CpuTuneSpec | None = key(part(CpuTuneSpec))
    iothreads: int | None = key(v.count)

    def check(self, what: str) -> None:
        maximum, current = given(self.maximum), given(self.current)
        if maximum and current and current > maximum:
            raise InvalidInput(f"{what}: current {current} is more than maximum {maximum}")
        topology = given(self.topology)
        total = topology.total() if topology else None
        if total and maximum and total != maximum:
            raise InvalidInput(f"{what}: the topology makes {total} CPUs, maximum says {maximum}")
        for number in given(self.vcpus) or {}:
            if maximum and number >= maximum:
                raise InvalidInput(f"{what}:vcpus has {number}, the last one is {maximum - 1}")


def parse(value: Any, what: str = "cpu") -> CpuSpec:
    """A CpuSpec from a number or a dictionary; None or 0 say nothing.

    A number alone is how many CPUs there shall be, all of them running.
    """
    if value in (None, 0, "", "0"):
        return CpuSpec()
    if isinstance(value, dict):
        return CpuSpec.parse(value, what)
    return CpuSpec(maximum=v.count(value, what), current=REMOVE)
