"""The user's arguments for the SMBIOS tables and fw_cfg items of a guest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, nested

GROUPS = ("bios", "system", "baseboard", "chassis")
# the prefix that QEMU reserves for users
_FW_CFG = "opt/"
_FW_CFG_NAME = re.compile(r"opt/[A-Za-z0-9_./:+-]{1,51}")
_RELEASE = re.compile(r"\d{1,3}\.\d{1,3}")


def _release(value: Any, argument: str) -> str:
    """The release of a BIOS, as QEMU accepts it."""
    if not _RELEASE.fullmatch(str(value)) or any(int(part) > 255 for part in str(value).split(".")):
        raise InvalidInput(f"{argument} {value!r} is not a release such as 2.10")
    return str(value)


@dataclass
class BiosSpec(Spec):
    """``bios`` of ``sysinfo``."""

    vendor: str | None = key(values.line)
    version: str | None = key(values.line)
    date: str | None = key(values.line)
    release: str | None = key(_release)


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
    if not _FW_CFG_NAME.fullmatch(name):
        raise InvalidInput(
            f"{argument} {name!r}: at most 55 letters, digits and _ . / : + - "
            f"that begin with {_FW_CFG}"
        )
    return name


def _fw_cfg_text(value: Any, argument: str) -> str:
    """A text, which errors do not show. libvirt passes a comma to QEMU unchanged, which separates
    options there."""
    text = values.secret(value, argument)
    if isinstance(value, bool) or "," in text:
        raise InvalidInput(f"{argument}: a text without commas, which QEMU does not accept there")
    return text


@dataclass
class SysinfoSpec(Spec):
    """The ``sysinfo`` argument."""

    bios: BiosSpec | None = key(nested(BiosSpec))
    system: SystemSpec | None = key(nested(SystemSpec))
    baseboard: BaseboardSpec | None = key(nested(BaseboardSpec))
    chassis: ChassisSpec | None = key(nested(ChassisSpec))
    oem_strings: list[str] | None = key(values.list_of(values.line))
    fw_cfg: dict[str, str] | None = key(values.map_of(_fw_cfg_name, _fw_cfg_text), repr=False)
