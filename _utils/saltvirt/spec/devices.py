"""The user's arguments for TPM, random number generator, watchdog and balloon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.devices.memballoon import MemBalloon
from saltvirt.xml.devices.rng import Rng
from saltvirt.xml.devices.tpm import Tpm

if TYPE_CHECKING:
    from saltvirt.spec.base import P, Parser

NONE = "none"


@dataclass
class TpmSpec(Spec):
    """``tpm``: True, a model, or a dictionary."""

    model: str | None = key(values.word)
    type: str | None = key(values.choice("emulator", "passthrough"))
    version: str | None = key(values.choice("1.2", "2.0"))
    persistent_state: bool | None = key(values.boolean, xml=Tpm.persistent_state)
    device: str | None = key(values.path, xml=Tpm.device_path)

    def check(self, argument: str) -> None:
        if self.device and self.type != "passthrough":
            raise InvalidInput(f"{argument}: device is for type passthrough")


@dataclass
class RngSpec(Spec):
    """``rng``: True, the host's device, or a dictionary; rate in bytes for each period (ms)."""

    model: str | None = key(values.word)
    backend: str | None = key(values.choice("random", "builtin"))
    source: str | None = key(values.path)
    rate_bytes: int | None = key(values.count, name="rate", xml=Rng.rate_bytes)
    period_ms: int | None = key(values.count, name="period", xml=Rng.rate_period_ms)


@dataclass
class WatchdogSpec(Spec):
    """``watchdog``: a model, or a dictionary."""

    model: str | None = key(values.choice("i6300esb", "ib700", "diag288", "itco", NONE))
    action: str | None = key(
        values.choice("reset", "shutdown", "poweroff", "pause", NONE, "dump", "inject-nmi"),
    )


@dataclass
class BalloonSpec(Spec):
    """``memballoon``: a model (``none``: no balloon), or a dictionary."""

    model: str | None = key(values.word)
    autodeflate: bool | None = key(values.boolean, xml=MemBalloon.autodeflate)
    free_page_reporting: bool | None = key(values.boolean, xml=MemBalloon.free_page_reporting)
    period_s: int | None = key(values.count, name="period", xml=MemBalloon.stats_period_s)


def parser(cls: type[P], shorthand_key: str) -> Parser[P | str | None]:
    """A parser of a device: a dictionary, the value of ``shorthand_key`` only, True for defaults,
    False for no device.

    The parser returns None if nothing was given, ``NONE`` if the device must not exist.
    """

    def parse(value: Any, argument: str) -> P | str | None:
        if value is None:
            return None
        if value is False or str(value).lower() == NONE:
            return NONE
        if value is True:
            return cls()
        return cls.parse(value if isinstance(value, dict) else {shorthand_key: value}, argument)

    return parse


tpm = parser(TpmSpec, "model")
rng = parser(RngSpec, "source")
watchdog = parser(WatchdogSpec, "model")
memballoon = parser(BalloonSpec, "model")
