"""Pinning and scheduling of the guest's CPUs and threads."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.domain.resctrl import CacheTune, MemoryTune
from saltvirt.xml.kinds import INT


class VcpuPin(Element):
    """``<vcpupin>``."""

    TAG = "vcpupin"

    vcpu = Prop("@vcpu", INT)
    cpuset = Prop("@cpuset")


class IothreadPin(Element):
    """``<iothreadpin>``."""

    TAG = "iothreadpin"

    iothread = Prop("@iothread", INT)
    cpuset = Prop("@cpuset")


class Sched(Element):
    """``<vcpusched>``, ``<iothreadsched>``, ``<emulatorsched>``."""

    TAG = "vcpusched"

    vcpus = Prop("@vcpus")
    iothreads = Prop("@iothreads")
    scheduler = Prop("@scheduler")
    priority = Prop("@priority", INT)


class CpuTune(Element):
    """``<cputune>``; periods and quotas in microseconds."""

    TAG = "cputune"

    shares = Prop("shares", INT)
    period = Prop("period", INT)
    quota = Prop("quota", INT)
    global_period = Prop("global_period", INT)
    global_quota = Prop("global_quota", INT)
    emulator_period = Prop("emulator_period", INT)
    emulator_quota = Prop("emulator_quota", INT)
    iothread_period = Prop("iothread_period", INT)
    iothread_quota = Prop("iothread_quota", INT)
    vcpupins = Children("vcpupin", VcpuPin)
    emulatorpin = Prop("emulatorpin/@cpuset")
    iothreadpins = Children("iothreadpin", IothreadPin)
    vcpuscheds = Children("vcpusched", Sched)
    iothreadscheds = Children("iothreadsched", Sched)
    emulatorsched = Prop("emulatorsched/@scheduler")
    emulatorsched_priority = Prop("emulatorsched/@priority", INT)
    cachetunes = Children("cachetune", CacheTune)
    memorytunes = Children("memorytune", MemoryTune)
