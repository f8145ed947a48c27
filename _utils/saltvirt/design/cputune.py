"""Pinning and scheduling of the guest's CPUs."""

from saltvirt.design.put import merge, put, replace
from saltvirt.spec.base import REMOVE, given
from saltvirt.xml.cputune import IothreadPin, Sched, VcpuPin
from saltvirt.xml.resctrl import Cache, CacheTune, MemoryTune, Monitor, Node

_NUMBERS = (
    "shares", "period", "quota", "global_period", "global_quota", "emulator_period",
    "emulator_quota", "iothread_period", "iothread_quota",
)  # fmt: skip


def apply(spec, domain, context):
    """Lays a CpuSpec's tuning onto a domain."""
    del context
    tuning = spec.tuning
    if tuning is REMOVE:
        domain.cputune = None
        return
    if tuning is None:
        return
    tune = domain.cputune
    put(tune, tuning, *_NUMBERS, "emulatorpin")
    merge(
        tune, "vcpupins", tuning.vcpupin,
        key=lambda child: child.vcpu,
        edit=lambda child, value: setattr(child, "cpuset", value),
        make=lambda number: VcpuPin(vcpu=number),
    )  # fmt: skip
    merge(
        tune, "iothreadpins", tuning.iothreadpin,
        key=lambda child: child.iothread,
        edit=lambda child, value: setattr(child, "cpuset", value),
        make=lambda number: IothreadPin(iothread=number),
    )  # fmt: skip
    _schedulers(tuning, tune)
    _resctrl(tuning, tune)


def _schedulers(tuning, tune):
    for name, wanted in (
        ("vcpuscheds", tuning.vcpusched),
        ("iothreadscheds", tuning.iothreadsched),
    ):
        if wanted is None:
            continue
        replace(tune, name, [_sched(item) for item in given(wanted) or ()])
    if tuning.emulatorsched is REMOVE:
        tune.emulatorsched = tune.emulatorsched_priority = None
    elif tuning.emulatorsched:
        tune.emulatorsched = tuning.emulatorsched.scheduler
        tune.emulatorsched_priority = given(tuning.emulatorsched.priority)


def _sched(spec):
    sched = Sched(scheduler=spec.scheduler)
    put(sched, spec, "vcpus", "iothreads", "priority")
    return sched


def _resctrl(tuning, tune):
    if tuning.cachetune is not None:
        wanted = given(tuning.cachetune) or {}
        replace(tune, "cachetunes", [_cachetune(*item) for item in wanted.items() if item[1]])
    if tuning.memorytune is not None:
        wanted = given(tuning.memorytune) or {}
        replace(tune, "memorytunes", [_memorytune(*item) for item in wanted.items() if item[1]])


def _cachetune(vcpus, spec):
    tune = CacheTune(vcpus=vcpus)
    for number, share in spec.caches.items():
        cache = tune.caches.append(Cache(id=number))
        put(cache, share, "level", "type", "size", "unit")
    for watched, level in spec.monitors.items():
        tune.monitors.append(Monitor(level=level, vcpus=watched))
    return tune


def _memorytune(vcpus, spec):
    tune = MemoryTune(vcpus=vcpus)
    for number, percent in spec.items():
        tune.nodes.append(Node(id=number, bandwidth=percent))
    return tune
