"""The guest's CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import units
from saltvirt.design import vcpus
from saltvirt.design.put import is_given, merge, put
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec.base import REMOVE
from saltvirt.spec.cpu import CpuSpec
from saltvirt.spec.values import numbers
from saltvirt.xml.domain.cpu import Cell, CpuFeature, Sibling

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.cpu import CellSpec
    from saltvirt.xml.domain.cpu import Cpu
    from saltvirt.xml.domain.domain import Domain

# Emulated CPUs: the newest of these that this QEMU can emulate in full. Named, so that
# all hosts with this QEMU give the same CPU and guests can move between them.
EMULATED = ("Westmere", "Nehalem", "qemu64")


def apply(spec: CpuSpec, domain: Domain, context: Context) -> None:
    """Apply a CpuSpec to a domain. An empty spec changes nothing."""
    if spec == CpuSpec():
        return
    before = domain.vcpu.maximum
    _count(spec, domain, context)
    has_model_name = is_given(spec.model) and is_given(spec.model.name)
    _mode("custom" if has_model_name and spec.mode is None else spec.mode, domain.cpu)
    _model(spec, domain.cpu)
    if spec.topology:
        _complete_topology(domain)
    elif domain.vcpu.maximum != before:
        fit_topology(domain)
    for cell in domain.cpu.cells:
        beyond = numbers(cell.cpus or "") - set(range(domain.vcpu.maximum or 0))
        if beyond:
            raise InvalidInput(
                f"cpu: NUMA cell {cell.id} has CPU {max(beyond)}, the guest has "
                f"{domain.vcpu.maximum}: give cpu:numa, too"
            )
    if spec.iothreads is REMOVE:
        domain.iothreads = None
    elif spec.iothreads:
        domain.iothreads = spec.iothreads


def _count(spec: CpuSpec, domain: Domain, context: Context) -> None:
    limit = context.domain.max_vcpus if context.domain else None
    if limit and is_given(spec.maximum) and spec.maximum > limit:
        raise Unsupported(
            f"cpu {spec.maximum}: this host runs guests with at most "
            f"{units.pluralize(limit, 'CPU')}"
        )
    before = domain.vcpu.maximum, domain.vcpu.current
    put(domain.vcpu, spec)
    if spec.vcpus is not None or (domain.vcpu.maximum, domain.vcpu.current) != before:
        vcpus.apply(spec, domain)
    current, maximum = domain.vcpu.current, domain.vcpu.maximum
    if current and maximum and current >= maximum:
        domain.vcpu.current = None


def _mode(mode: str | None, cpu: Cpu) -> None:
    """Set the CPU mode; another mode clears the settings of the old one."""
    if not is_given(mode) or mode == cpu.mode:
        return
    if mode != "custom":
        cpu.model = cpu.fallback = cpu.vendor_id = cpu.vendor = cpu.match = cpu.check = None
    if mode not in ("host-passthrough", "maximum"):
        cpu.migratable = None


def _complete_topology(domain: Domain) -> None:
    """Set the parts of the topology that are not given: one thread, one core, and as many sockets
    as the CPUs fill."""
    cpu = domain.cpu
    if not (cpu.sockets or cpu.cores or cpu.threads):
        return
    cpu.threads, cpu.cores = cpu.threads or 1, cpu.cores or 1
    each = (cpu.dies or 1) * (cpu.clusters or 1) * cpu.cores * cpu.threads
    cpu.sockets = cpu.sockets or max(1, (domain.vcpu.maximum or 1) // each)


def fit_topology(domain: Domain) -> None:
    """Adapt the topology to another number of CPUs: libvirt requires that they match."""
    cpu, maximum = domain.cpu, domain.vcpu.maximum
    if not cpu.sockets or not maximum:
        return
    if (cpu.sockets, cpu.dies or 1, cpu.clusters or 1, cpu.threads or 1) == (1, 1, 1, 1):
        cpu.cores = maximum  # a guest of one socket keeps it
        return
    each = (cpu.dies or 1) * (cpu.clusters or 1) * (cpu.cores or 1) * (cpu.threads or 1)
    if maximum % each:
        cpu.cores, cpu.threads = 1, 1
        cpu.dies, cpu.clusters = cpu.dies and 1, cpu.clusters and 1
        each = 1
    cpu.sockets = maximum // each


def _model(spec: CpuSpec, cpu: Cpu) -> None:
    put(cpu, spec)
    if is_given(spec.model) and is_given(spec.model.name) and spec.mode is None:
        cpu.mode = "custom"
        cpu.match = cpu.match or "exact"
    merge(cpu, "features", spec.features, CpuFeature, "name", "policy")
    for number, cell in enumerate(cpu.cells if spec.numa else ()):
        if cell.id is None:
            cell.id = number  # in libvirt's numbering
    merge(cpu, "cells", spec.numa, Cell, "id", _cell)


def _cell(cell: Cell, spec: CellSpec) -> None:
    put(cell, spec, "cpus", "memory_kib", "discard", "memory_access")
    merge(cell, "distances", spec.distances, Sibling, "id", "value")


def default(domain: Domain, context: Context) -> None:
    """Set the default CPU of a new guest."""
    if context.guest.os_type != "hvm" or not context.qemu or domain.cpu.mode or domain.cpu.model:
        return
    domain_caps = context.domain
    if domain_caps is None:
        return
    if context.virt_type != "qemu":
        for mode in ("host-model", "host-passthrough"):
            if mode in domain_caps.cpu_modes:
                domain.cpu.mode = mode
                return
    for model in EMULATED:
        if domain_caps.cpu_models.get(model):
            domain.cpu.mode, domain.cpu.match = "custom", "exact"
            domain.cpu.model, domain.cpu.fallback = model, "forbid"
            return
