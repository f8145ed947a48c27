"""The guest's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.caps import X86
from saltvirt.design.put import clear, merge, put
from saltvirt.spec.base import value_or_none
from saltvirt.spec.clock import TimerSpec
from saltvirt.xml.domain.timer import Timer

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.clock import ClockSpec
    from saltvirt.xml.domain.clock import Clock
    from saltvirt.xml.domain.domain import Domain


def apply(spec: ClockSpec | None, domain: Domain, context: Context) -> None:
    """Apply a ClockSpec to a domain. A part of the time that is not given is UTC. If only timers
    are given, the time is unchanged."""
    del context
    if spec is None:
        return
    if (spec.utc, spec.adjustment, spec.timezone) != (None, None, None):
        _time(spec, domain.clock)
    merge(domain.clock, "timers", spec.timers, Timer, "name", _timer)


def _time(spec: ClockSpec, clock: Clock) -> None:
    clock.offset = spec.offset()
    clock.basis = spec.basis() if clock.offset == "variable" else None
    clock.timezone = value_or_none(spec.timezone)
    adjustment = value_or_none(spec.adjustment)
    clock.adjustment = None if adjustment is None else str(adjustment)
    clock.start = None


def _timer(timer: Timer, spec: TimerSpec) -> None:
    clear(timer, TimerSpec)
    put(timer, spec)


def default(domain: Domain, context: Context, spec: ClockSpec | None) -> None:
    """Set the default clock of a new guest. Requested timers are a complete list, to which no
    default is added."""
    if not domain.clock.offset and not context.container:
        domain.clock.offset = "utc"
    if has_timers(context) and (spec is None or spec.timers is None):
        add_timers(domain)


def has_timers(context: Context) -> bool:
    """Whether the machine has the timers of a PC."""
    return context.qemu and context.guest.arch in X86


def add_timers(domain: Domain) -> None:
    """Add the default timers that a domain does not have."""
    names = {timer.name for timer in domain.clock.timers}
    for timer in (
        Timer(name="rtc", tickpolicy="catchup"),
        Timer(name="pit", tickpolicy="delay"),
        Timer(name="hpet", present=False),
    ):
        if timer.name not in names:
            domain.clock.timers.append(timer)
