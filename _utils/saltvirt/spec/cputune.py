"""The user's arguments in ``cpu:tuning``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, mapping, nested
from saltvirt.xml.domain.cputune import CpuTune, Sched
from saltvirt.xml.domain.resctrl import Cache

SCHEDULERS = ("batch", "idle", "fifo", "rr")
_US = values.number(1)
_QUOTA = values.number(-1)


@dataclass
class SchedSpec(Spec):
    """A scheduler for some threads."""

    scheduler: str = key(values.choice(*SCHEDULERS))
    priority: int | None = key(values.number(1, 99), xml=Sched.priority)
    vcpus: str | None = key(values.cpuset)
    iothreads: str | None = key(values.cpuset)

    def check(self, argument: str) -> None:
        if not self.scheduler:
            raise InvalidInput(f"{argument}: scheduler is missing; one of {', '.join(SCHEDULERS)}")


@dataclass
class CacheShareSpec(Spec):
    """A part of one CPU cache."""

    level: int | None = key(values.number(1, 3), xml=Cache.level)
    type: str | None = key(values.choice("both", "code", "data"), xml=Cache.type)
    size: int | None = key(values.count, xml=Cache.size)
    unit: str | None = key(values.choice("B", "KiB", "MiB", "GiB"), xml=Cache.unit)


@dataclass
class CacheTuneSpec:
    """For a set of vCPUs: cache shares by cache id, monitors by vCPU set."""

    caches: dict[int, CacheShareSpec]
    monitors: dict[str, int]


def _cachetune(value: Any, argument: str) -> CacheTuneSpec:
    caches: dict[int, CacheShareSpec] = {}
    monitors: dict[str, int] = {}
    for name, item in mapping(value, argument).items():
        if name == "monitor":
            monitors = values.map_of(values.cpuset, values.number(1, 3))(
                item or {}, f"{argument}:monitor"
            )
        elif item is not None:
            cache = values.number()(name, argument)
            caches[cache] = CacheShareSpec.parse(item, f"{argument}:{name}")
    return CacheTuneSpec(caches, monitors)


def _emulatorsched(value: Any, argument: str) -> SchedSpec:
    """A dictionary, or a list of one dictionary as in Salt's documentation."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return SchedSpec.parse(value, argument)


@dataclass
class CpuTuneSpec(Spec):
    """``cpu:tuning``; periods and quotas in microseconds."""

    vcpupin: dict[int, str] | None = key(values.map_of(values.number(), values.cpuset))
    emulatorpin: str | None = key(values.cpuset, xml=CpuTune.emulatorpin)
    iothreadpin: dict[int, str] | None = key(values.map_of(values.number(1), values.cpuset))
    shares: int | None = key(values.count, xml=CpuTune.shares)
    period: int | None = key(_US, xml=CpuTune.period)
    quota: int | None = key(_QUOTA, xml=CpuTune.quota)
    global_period: int | None = key(_US, xml=CpuTune.global_period)
    global_quota: int | None = key(_QUOTA, xml=CpuTune.global_quota)
    emulator_period: int | None = key(_US, xml=CpuTune.emulator_period)
    emulator_quota: int | None = key(_QUOTA, xml=CpuTune.emulator_quota)
    iothread_period: int | None = key(_US, xml=CpuTune.iothread_period)
    iothread_quota: int | None = key(_QUOTA, xml=CpuTune.iothread_quota)
    vcpusched: list[SchedSpec] | None = key(values.list_of(nested(SchedSpec)))
    iothreadsched: list[SchedSpec] | None = key(values.list_of(nested(SchedSpec)))
    emulatorsched: SchedSpec | None = key(_emulatorsched)
    cachetune: dict[str, CacheTuneSpec] | None = key(values.map_of(values.cpuset, _cachetune))
    memorytune: dict[str, dict[int, int]] | None = key(
        values.map_of(values.cpuset, values.map_of(values.number(), values.number(1, 100))),
    )
