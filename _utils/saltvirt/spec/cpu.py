"""The user's arguments for the CPUs of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import REMOVE, Spec, key, nested, value_or_none
from saltvirt.spec.cputune import CpuTuneSpec
from saltvirt.xml.domain.cpu import Cpu
from saltvirt.xml.domain.vcpu import Vcpu, VcpuState

POLICIES = ("force", "require", "optional", "disable", "forbid")


@dataclass
class VcpuSpec(Spec):
    """The state of one virtual CPU."""

    enabled: bool | None = key(values.boolean)
    hotpluggable: bool | None = key(values.boolean, xml=VcpuState.hotpluggable)
    order: int | None = key(values.count, xml=VcpuState.plug_order)


@dataclass
class ModelSpec(Spec):
    """The CPU model by name."""

    name: str | None = key(values.word, xml=Cpu.model)
    fallback: str | None = key(values.choice("allow", "forbid"), xml=Cpu.fallback)
    vendor_id: str | None = key(values.text, xml=Cpu.vendor_id)

    def check(self, argument: str) -> None:
        vendor_id = value_or_none(self.vendor_id)
        if vendor_id and (len(vendor_id) != 12 or "," in vendor_id):
            raise InvalidInput(
                f"{argument}:vendor_id {vendor_id!r} must have 12 characters and no comma"
            )


def _model(value: Any, argument: str) -> ModelSpec:
    return ModelSpec.parse({"name": value} if isinstance(value, str) else value, argument)


@dataclass
class TopologySpec(Spec):
    """Sockets, dies, clusters, cores, threads."""

    sockets: int | None = key(values.count, xml=Cpu.sockets)
    dies: int | None = key(values.count, xml=Cpu.dies)
    clusters: int | None = key(values.count, xml=Cpu.clusters)
    cores: int | None = key(values.count, xml=Cpu.cores)
    threads: int | None = key(values.count, xml=Cpu.threads)

    def total(self) -> int | None:
        """The resulting number of CPUs, or None if a part is not given."""
        sockets, cores, threads = (
            value_or_none(self.sockets),
            value_or_none(self.cores),
            value_or_none(self.threads),
        )
        if not (sockets and cores and threads):
            return None
        groups = (value_or_none(self.dies) or 1) * (value_or_none(self.clusters) or 1)
        return sockets * groups * cores * threads


@dataclass
class CacheSpec(Spec):
    """The CPU cache that the guest sees."""

    level: int | None = key(values.number(1, 3), xml=Cpu.cache_level)
    mode: str | None = key(values.choice("emulate", "passthrough", "disable"), xml=Cpu.cache_mode)


@dataclass
class CellSpec(Spec):
    """One NUMA cell of the guest."""

    cpus: str | None = key(values.cpuset)
    memory_kib: int | None = key(values.kib, name="memory")
    discard: bool | None = key(values.boolean)
    memory_access: str | None = key(values.choice("shared", "private"), name="memAccess")
    distances: dict[int, int] | None = key(values.map_of(values.number(), values.number(10, 255)))


@dataclass
class CpuSpec(Spec):
    """The ``cpu`` argument."""

    maximum: int | None = key(values.count, xml=Vcpu.maximum)
    placement: str | None = key(values.choice("static", "auto"), xml=Vcpu.placement)
    cpuset: str | None = key(values.cpuset, xml=Vcpu.cpuset)
    current: int | None = key(values.count, xml=Vcpu.current)
    vcpus: dict[int, VcpuSpec] | None = key(values.map_of(values.number(), nested(VcpuSpec)))
    mode: str | None = key(
        values.choice("custom", "host-model", "host-passthrough", "maximum"), xml=Cpu.mode
    )
    match: str | None = key(values.choice("minimum", "exact", "strict"), xml=Cpu.match)
    migratable: bool | None = key(values.boolean, xml=Cpu.migratable)
    vendor: str | None = key(values.word, xml=Cpu.vendor)
    check_: str | None = key(values.choice("none", "partial", "full"), name="check", xml=Cpu.check)
    model: ModelSpec | None = key(_model, xml=ModelSpec)
    topology: TopologySpec | None = key(nested(TopologySpec), xml=TopologySpec)
    cache: CacheSpec | None = key(nested(CacheSpec), xml=CacheSpec)
    features: dict[str, str] | None = key(values.map_of(values.word, values.choice(*POLICIES)))
    numa: dict[int, CellSpec] | None = key(values.map_of(values.number(), nested(CellSpec)))
    tuning: CpuTuneSpec | None = key(nested(CpuTuneSpec))
    iothreads: int | None = key(values.count)

    def check(self, argument: str) -> None:
        maximum, current = value_or_none(self.maximum), value_or_none(self.current)
        if maximum and current and current > maximum:
            raise InvalidInput(f"{argument}: current {current} is more than maximum {maximum}")
        topology = value_or_none(self.topology)
        total = topology.total() if topology else None
        if total and maximum and total != maximum:
            cpus = units.pluralize(total, "CPU")
            raise InvalidInput(f"{argument}: the topology makes {cpus}, maximum says {maximum}")
        for number in value_or_none(self.vcpus) or {}:
            if maximum and number >= maximum:
                raise InvalidInput(f"{argument}:vcpus has {number}, the last one is {maximum - 1}")


def parse_cpu(value: Any, argument: str = "cpu") -> CpuSpec:
    """A CpuSpec from a number or a dictionary; None or 0 mean "not given".

    A number sets the count of CPUs, all of them online.
    """
    if value in (None, 0, "", "0"):
        return CpuSpec()
    if isinstance(value, dict):
        return CpuSpec.parse(value, argument)
    return CpuSpec(maximum=values.count(value, argument), current=REMOVE)
