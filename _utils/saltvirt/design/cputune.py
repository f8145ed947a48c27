"""Pinning and scheduling of the guest's CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import merge, put, replace
from saltvirt.spec.base import REMOVE, value_or_none
from saltvirt.spec.cpu import CpuSpec
from saltvirt.spec.values import cpuset, numbers, ranges
from saltvirt.xml.domain.cputune import IothreadPin, Sched, VcpuPin
from saltvirt.xml.domain.resctrl import Cache, CacheTune, MemoryTune, Monitor, Node

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saltvirt.design.context import Context
    from saltvirt.spec.cputune import CacheTuneSpec, CpuTuneSpec, SchedSpec
    from saltvirt.xml.domain.cputune import CpuTune
    from saltvirt.xml.domain.domain import Domain


def apply(spec: CpuSpec, domain: Domain, context: Context) -> None:
    """Apply a CpuSpec's tuning to a domain. An empty spec changes nothing."""
    del context
    if spec == CpuSpec():
        return
    tuning = spec.tuning
    if tuning is REMOVE:
        domain.cputune = None
    elif tuning:
        _tune(tuning, domain)
    _trim(domain, ["vcpu"] * bool(spec.maximum) + ["iothread"] * bool(spec.iothreads))


def _trim(domain: Domain, changed_parts: list[str]) -> None:
    """Remove settings of CPUs or threads that no longer exist after their number was changed."""
    tune, maximum, threads = domain.cputune, domain.vcpu.maximum or 0, domain.iothreads or 0
    for name, word, valid_ids in (
        ("vcpupins", "vcpu", range(maximum)),
        ("iothreadpins", "iothread", range(1, threads + 1)),
        ("vcpuscheds", "vcpus", range(maximum)),
        ("iothreadscheds", "iothreads", range(1, threads + 1)),
        ("cachetunes", "vcpus", range(maximum)),
        ("memorytunes", "vcpus", range(maximum)),
    ):
        for item in getattr(tune, name) if word.removesuffix("s") in changed_parts else ():
            id_list = getattr(item, word)
            remaining = (
                numbers(str(id_list)) & set(valid_ids) if id_list is not None else set(valid_ids)
            )
            if not remaining:
                getattr(tune, name).remove(item)
            elif id_list is not None and remaining != numbers(str(id_list)):
                setattr(item, word, ranges(remaining))


def _tune(tuning: CpuTuneSpec, domain: Domain) -> None:
    tune = domain.cputune
    put(tune, tuning)
    merge(tune, "vcpupins", tuning.vcpupin, VcpuPin, "vcpu", "cpuset")
    merge(tune, "iothreadpins", tuning.iothreadpin, IothreadPin, "iothread", "cpuset")
    _schedulers(tuning, domain)
    _resctrl(tuning, tune)


def _schedulers(tuning: CpuTuneSpec, domain: Domain) -> None:
    tune = domain.cputune
    for word, name, everything in (
        ("vcpus", "vcpuscheds", range(domain.vcpu.maximum or 0)),
        ("iothreads", "iothreadscheds", range(1, (domain.iothreads or 0) + 1)),
    ):
        sched_specs = getattr(tuning, name.removesuffix("s"))
        if sched_specs is not None:
            replace(tune, name, _scheds(value_or_none(sched_specs) or (), word, everything))
    if tuning.emulatorsched is REMOVE:
        tune.emulatorsched = tune.emulatorsched_priority = None
    elif tuning.emulatorsched:
        tune.emulatorsched = tuning.emulatorsched.scheduler
        tune.emulatorsched_priority = value_or_none(tuning.emulatorsched.priority)


def _scheds(specs: Collection[SchedSpec], word: str, everything: range) -> list[Sched]:
    """Build the elements; a scheduler without threads applies to all threads without a
    scheduler."""
    assigned = set().union(*(numbers(getattr(spec, word)) for spec in specs))
    rest = ",".join(str(number) for number in everything if number not in assigned)
    scheds = []
    for spec in specs:
        sched = Sched(scheduler=spec.scheduler)
        put(sched, spec, word)
        if getattr(sched, word) is None and rest:
            setattr(sched, word, cpuset(rest, word))
        scheds.append(sched)
    return scheds


def _resctrl(tuning: CpuTuneSpec, tune: CpuTune) -> None:
    if tuning.cachetune is not None:
        cache_specs = value_or_none(tuning.cachetune) or {}
        replace(tune, "cachetunes", [_cachetune(*item) for item in cache_specs.items() if item[1]])
    if tuning.memorytune is not None:
        shares = value_or_none(tuning.memorytune) or {}
        replace(tune, "memorytunes", [_memorytune(*item) for item in shares.items() if item[1]])


def _cachetune(vcpus: str, spec: CacheTuneSpec) -> CacheTune:
    tune = CacheTune(vcpus=vcpus)
    for number, share in spec.caches.items():
        cache = tune.caches.append(Cache(id=number))
        put(cache, share)
    for watched, level in spec.monitors.items():
        tune.monitors.append(Monitor(level=level, vcpus=watched))
    return tune


def _memorytune(vcpus: str, spec: Mapping[int, int]) -> MemoryTune:
    tune = MemoryTune(vcpus=vcpus)
    for number, percent in spec.items():
        tune.nodes.append(Node(id=number, bandwidth=percent))
    return tune
