"""What the user asked for of the guest's CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import REMOVE, Part, given, key, part
from saltvirt.spec.cputune import CpuTuneSpec

POLICIES = ("force", "require", "optional", "disable", "forbid")


@dataclass
class VcpuSpec(Part):
    """The state of one virtual CPU."""

    enabled: bool | None = key(values.boolean)
    hotpluggable: bool | None = key(values.boolean)
    order: int | None = key(values.count)


@dataclass
class ModelSpec(Part):
    """The CPU model by name."""

    name: str | None = key(values.word)
    fallback: str | None = key(values.choice("allow", "forbid"))
    vendor_id: str | None = key(values.text)

    def check(self, what: str) -> None:
        vendor_id = given(self.vendor_id)
        if vendor_id and (len(vendor_id) != 12 or "," in vendor_id):
            raise InvalidInput(f"{what}:vendor_id {vendor_id!r} must be of 12 characters, no comma")


def _model(value: Any, what: str) -> ModelSpec:
    return ModelSpec.parse({"name": value} if isinstance(value, str) else value, what)


@dataclass
class TopologySpec(Part):
    """Sockets, dies, clusters, cores, threads."""

    sockets: int | None = key(values.count)
    dies: int | None = key(values.count)
    clusters: int | None = key(values.count)
    cores: int | None = key(values.count)
    threads: int | None = key(values.count)

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

    level: int | None = key(values.number(1, 3))
    mode: str | None = key(values.choice("emulate", "passthrough", "disable"))


@dataclass
class CellSpec(Part):
    """One NUMA cell of the guest."""

    cpus: str | None = key(values.cpuset)
    memory_kib: int | None = key(values.kib, name="memory")
    discard: bool | None = key(values.boolean)
    memory_access: str | None = key(values.choice("shared", "private"), name="memAccess")
    distances: dict[int, int] | None = key(values.map_of(values.number(), values.number(10, 255)))


@dataclass
class CpuSpec(Part):
    """The ``cpu`` argument."""

    maximum: int | None = key(values.count)
    current: int | None = key(values.count)
    placement: str | None = key(values.choice("static", "auto"))
    cpuset: str | None = key(values.cpuset)
    vcpus: dict[int, VcpuSpec] | None = key(values.map_of(values.number(), part(VcpuSpec)))
    match: str | None = key(values.choice("minimum", "exact", "strict"))
    mode: str | None = key(values.choice("custom", "host-model", "host-passthrough", "maximum"))
    check_: str | None = key(values.choice("none", "partial", "full"), name="check")
    migratable: bool | None = key(values.boolean)
    vendor: str | None = key(values.word)
    model: ModelSpec | None = key(_model)
    topology: TopologySpec | None = key(part(TopologySpec))
    cache: CacheSpec | None = key(part(CacheSpec))
    features: dict[str, str] | None = key(values.map_of(values.word, values.choice(*POLICIES)))
    numa: dict[int, CellSpec] | None = key(values.map_of(values.number(), part(CellSpec)))
    tuning: CpuTuneSpec | None = key(part(CpuTuneSpec))
    iothreads: int | None = key(values.count)

    def check(self, what: str) -> None:
        maximum, current = given(self.maximum), given(self.current)
        if maximum and current and current > maximum:
            raise InvalidInput(f"{what}: current {current} is more than maximum {maximum}")
        topology = given(self.topology)
        total = topology.total() if topology else None
        if total and maximum and total != maximum:
            cpus = units.counted(total, "CPU")
            raise InvalidInput(f"{what}: the topology makes {cpus}, maximum says {maximum}")
        for number in given(self.vcpus) or {}:
            if maximum and number >= maximum:
                raise InvalidInput(f"{what}:vcpus has {number}, the last one is {maximum - 1}")


def parse_cpu(value: Any, what: str = "cpu") -> CpuSpec:
    """A CpuSpec from a number or a dictionary; None or 0 say nothing.

    A number alone is how many CPUs there shall be, all of them running.
    """
    if value in (None, 0, "", "0"):
        return CpuSpec()
    if isinstance(value, dict):
        return CpuSpec.parse(value, what)
    return CpuSpec(maximum=values.count(value, what), current=REMOVE)
