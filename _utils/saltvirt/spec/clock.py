"""What the user asked for of the guest's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Part, given, key, part

TIMERS = ("platform", "hpet", "kvmclock", "pit", "rtc", "tsc", "hypervclock", "armvtimer")


def _adjustment(value: Any, what: str) -> int | str:
    """Seconds, or ``reset``."""
    if value == "reset":
        return "reset"
    return values.number(-(2**62))(value, what)


def _catchup(value: Any, what: str) -> dict[str, int]:
    return values.map_of(values.choice("slew", "threshold", "limit"), values.number())(value, what)


@dataclass
class TimerSpec(Part):
    """One timer."""

    track: str | None = key(values.choice("boot", "guest", "wall", "realtime"))
    tickpolicy: str | None = key(values.choice("delay", "catchup", "merge", "discard"))
    frequency: int | None = key(values.count)
    mode: str | None = key(values.choice("auto", "native", "emulate", "paravirt", "smpsafe"))
    present: bool | None = key(values.boolean)
    slew: int | None = key(values.number())
    threshold: int | None = key(values.number())
    limit: int | None = key(values.number())
    catchup: dict[str, int] | None = key(_catchup)

    def check(self, what: str) -> None:
        for name, value in (given(self.catchup) or {}).items():
            setattr(self, name, value)


@dataclass
class ClockSpec(Part):
    """The ``clock`` argument."""

    utc: bool | None = key(values.boolean)
    adjustment: int | str | None = key(_adjustment)
    timezone: str | None = key(values.text)
    timers: dict[str, TimerSpec] | None = key(
        values.map_of(values.choice(*TIMERS), part(TimerSpec))
    )

    def check(self, what: str) -> None:
        if given(self.timezone) and given(self.adjustment):
            raise InvalidInput(f"{what}: timezone and adjustment exclude each other")

    def offset(self) -> str:
        """libvirt's word for it: utc, localtime, timezone or variable."""
        if given(self.timezone):
            return "timezone"
        if given(self.adjustment) not in (None, "reset"):
            return "variable"
        return "localtime" if self.utc is False else "utc"

    def basis(self) -> str:
        """What an adjustment counts from."""
        return "localtime" if self.utc is False else "utc"
