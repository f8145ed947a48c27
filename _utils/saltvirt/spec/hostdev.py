"""The user's arguments for host devices that are assigned to a guest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key

_PCI = re.compile(
    r"(?:pci_|0x)?([0-9a-f]{4})[:_]([0-9a-f]{2})[:_]([0-9a-f]{2})[._]([0-7])", re.IGNORECASE
)
_SCSI = re.compile(r"scsi_(\d+)_(\d+)_(\d+)_(\d+)")
_HEX = re.compile(r"(0x)?[0-9a-f]{1,8}", re.IGNORECASE)
_USB = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})", re.IGNORECASE)


def _hex(value: Any, argument: str) -> int:
    if not _HEX.fullmatch(units.number_text(value)):
        raise InvalidInput(f"{argument} {units.short_repr(value)} is not a hexadecimal number")
    return int(str(value), 16)


@dataclass
class HostDeviceSpec(Spec):
    """A device, by PCI address, USB ids, or a name that the host resolves.

    name: libvirt's name of the device, if there is one.
    """

    NONE_REMOVES = False

    name: str | None = key(values.text)
    type: str | None = key(values.choice("pci", "usb", "mdev", "scsi"))
    domain: int | None = key(_hex)
    bus: int | None = key(_hex)
    slot: int | None = key(_hex)
    function: int | None = key(_hex)
    vendor: int | None = key(_hex)
    product: int | None = key(_hex)
    uuid: str | None = key(values.word)
    adapter: str | None = key(values.word)
    target: int | None = key(values.number())
    unit: int | None = key(values.number())
    rom_file: str | None = key(values.path)

    @classmethod
    def parse_any(cls, value: Any, argument: str) -> HostDeviceSpec:
        """From ``pci_0000_03_00_0``, ``0000:03:00.0``, ``046d:c52b``, ``scsi_0_0_0_0``, a name or a
        dictionary."""
        if isinstance(value, dict):
            return cls.parse(value, argument)
        if match := _PCI.fullmatch(str(value)):
            numbers = [int(part, 16) for part in match.groups()]
            domain, bus, slot, function = numbers
            name = f"pci_{domain:04x}_{bus:02x}_{slot:02x}_{function:x}"
            return cls(name, "pci", domain, bus, slot, function)
        if match := _USB.fullmatch(str(value)):
            vendor, product = (int(part, 16) for part in match.groups())
            return cls(type="usb", vendor=vendor, product=product)
        if match := _SCSI.fullmatch(str(value)):
            adapter, bus, target, unit = (int(part) for part in match.groups())
            return cls(
                str(value), "scsi", bus=bus, adapter=f"scsi_host{adapter}", target=target, unit=unit
            )
        return cls(name=values.word(value, argument))

    @property
    def resolved(self) -> bool:
        """False if only the host can resolve the name."""
        return self.type is not None

    def check(self, argument: str) -> None:
        required_keys = {"pci": ("bus", "slot", "function"), "usb": ("vendor", "product"),
                         "scsi": ("adapter", "bus", "target", "unit")}  # fmt: skip
        missing = [n for n in required_keys.get(self.type or "", ()) if getattr(self, n) is None]
        if missing:
            raise InvalidInput(f"{argument}: {', '.join(missing)} missing")
        if not self.type and not self.name:
            raise InvalidInput(f"{argument}: name or type is missing")
