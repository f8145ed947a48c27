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
    if not context.qemu or context.guest.arch not in X86 or (spec and spec.timers is not None):
        return
    domain.clock.timers.append(Timer(name="rtc", tickpolicy="catchup"))
    domain.clock.timers.append(Timer(name="pit", tickpolicy="delay"))
    domain.clock.timers.append(Timer(name="hpet", present=False))
