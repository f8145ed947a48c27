"""The user's arguments for the SMBIOS tables and fw_cfg items of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested

GROUPS = ("bios", "system", "baseboard", "chassis")
# the prefix that QEMU reserves for users
_FW_CFG = "opt/"


@dataclass
class BiosSpec(Spec):
    """``bios`` of ``sysinfo``."""

    vendor: str | None = key(values.line)
    version: str | None = key(values.line)
    date: str | None = key(values.line)
    release: str | None = key(values.line)


@dataclass
class SystemSpec(Spec):
    """``system`` of ``sysinfo``."""

    manufacturer: str | None = key(values.line)
    product: str | None = key(values.line)
    version: str | None = key(values.line)
    serial: str | None = key(values.line)
    sku: str | None = key(values.line)
    family: str | None = key(values.line)


@dataclass
class BaseboardSpec(Spec):
    """``baseboard`` of ``sysinfo``."""

    manufacturer: str | None = key(values.line)
    product: str | None = key(values.line)
    version: str | None = key(values.line)
    serial: str | None = key(values.line)
    asset: str | None = key(values.line)
    location: str | None = key(values.line)


@dataclass
class ChassisSpec(Spec):
    """``chassis`` of ``sysinfo``."""

    manufacturer: str | None = key(values.line)
    version: str | None = key(values.line)
    serial: str | None = key(values.line)
    asset: str | None = key(values.line)
    sku: str | None = key(values.line)


def _fw_cfg_name(value: Any, argument: str) -> str:
    name = values.line(value, argument)
    if not name.startswith(_FW_CFG) or len(name) > 55:
        raise InvalidInput(f"{argument} {name!r}: at most 55 characters that begin with {_FW_CFG}")
    return name


@dataclass
class SysinfoSpec(Spec):
    """The ``sysinfo`` argument."""

    bios: BiosSpec | None = key(nested(BiosSpec))
    system: SystemSpec | None = key(nested(SystemSpec))
    baseboard: BaseboardSpec | None = key(nested(BaseboardSpec))
    chassis: ChassisSpec | None = key(nested(ChassisSpec))
    oem_strings: list[str] | None = key(values.list_of(values.line))
    fw_cfg: dict[str, str] | None = key(values.map_of(_fw_cfg_name, values.secret), repr=False)
