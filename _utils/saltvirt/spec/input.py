"""The user's arguments for keyboards and pointing devices of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key

EVDEV = "evdev"
TYPES = ("tablet", "keyboard", "mouse", EVDEV)


@dataclass
class InputSpec(Spec):
    """One item of ``inputs``: a type, or a dictionary."""

    NONE_LEAVES = frozenset(("type", "bus", "source", "grab", "repeat"))

    type: str = key(values.choice(*TYPES), required=True)
    bus: str | None = key(values.choice("usb", "virtio", "ps2"))
    source: str | None = key(values.path)
    grab: bool | None = key(values.boolean)
    repeat: bool | None = key(values.boolean)

    @classmethod
    def parse_any(cls, value: Any, argument: str) -> InputSpec:
        return cls.parse(value if isinstance(value, dict) else {"type": value}, argument)

    def check(self, argument: str) -> None:
        if self.type == EVDEV:
            if not self.source:
                raise InvalidInput(f"{argument}: source is missing: /dev/input/by-id/…")
            if self.bus:
                raise InvalidInput(f"{argument}: a device of the host has no bus")
            return
        if self.bus == "ps2" and self.type == "tablet":
            raise InvalidInput(f"{argument}: a tablet is on the bus usb or virtio")
        for word in ("source", "grab", "repeat"):
            if getattr(self, word) is not None:
                raise InvalidInput(f"{argument}: {word} is for type {EVDEV}")

    def identity(self) -> tuple[str | None, ...]:
        """What distinguishes it from the guest's other devices."""
        return self.type, self.bus, self.source


def parse(value: Any, argument: str) -> list[InputSpec]:
    """A list of InputSpec, each another device."""
    result = values.list_of(InputSpec.parse_any)(value, argument)
    identities = [item.identity() for item in result]
    for item in result:
        if identities.count(item.identity()) > 1:
            raise InvalidInput(f"{argument}: {item.source or item.type} is requested twice")
    return result
