"""The user's arguments for the clock of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested, value_or_none
from saltvirt.xml.domain.timer import Timer

TIMERS = ("platform", "hpet", "kvmclock", "pit", "rtc", "tsc", "hypervclock", "armvtimer")


def _adjustment(value: Any, argument: str) -> int | str:
    """Seconds, or ``reset``."""
    if value == "reset":
        return "reset"
    return values.number(-(2**62))(value, argument)


def _catchup(value: Any, argument: str) -> dict[str, int]:
    return values.map_of(values.choice("slew", "threshold", "limit"), values.number())(
        value, argument
    )


@dataclass
class TimerSpec(Spec):
    """One timer."""

    track: str | None = key(values.choice("boot", "guest", "wall", "realtime"), xml=Timer.track)
    tickpolicy: str | None = key(
        values.choice("delay", "catchup", "merge", "discard"), xml=Timer.tickpolicy
    )
    frequency: int | None = key(values.count, xml=Timer.frequency)
    mode: str | None = key(
        values.choice("auto", "native", "emulate", "paravirt", "smpsafe"), xml=Timer.mode
    )
    present: bool | None = key(values.boolean, xml=Timer.present)
    slew: int | None = key(values.number(), xml=Timer.slew)
    threshold: int | None = key(values.number(), xml=Timer.threshold)
    limit: int | None = key(values.number(), xml=Timer.limit)
    catchup: dict[str, int] | None = key(_catchup)

    def check(self, argument: str) -> None:
        for name, value in (value_or_none(self.catchup) or {}).items():
            setattr(self, name, value)


@dataclass
class ClockSpec(Spec):
    """The ``clock`` argument."""

    utc: bool | None = key(values.boolean)
    adjustment: int | str | None = key(_adjustment)
    timezone: str | None = key(values.text)
    timers: dict[str, TimerSpec] | None = key(
        values.map_of(values.choice(*TIMERS), nested(TimerSpec))
    )

    def check(self, argument: str) -> None:
        if value_or_none(self.timezone) and value_or_none(self.adjustment):
            raise InvalidInput(f"{argument}: timezone and adjustment exclude each other")

    def offset(self) -> str:
        """libvirt's name of the offset: utc, localtime, timezone or variable."""
        if value_or_none(self.timezone):
            return "timezone"
        if value_or_none(self.adjustment) not in (None, "reset"):
            return "variable"
        return "localtime" if self.utc is False else "utc"

    def basis(self) -> str:
        """The basis of an adjustment."""
        return "localtime" if self.utc is False else "utc"
