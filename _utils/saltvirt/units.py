"""Sizes and numbers, as written by users and libvirt.

libvirt's own scaling: https://libvirt.org/formatdomain.html#memory-allocation
(KB = 1000, K = KiB = 1024 bytes, and so on).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from saltvirt.errors import InvalidInput

# maximum length of an invalid value in a message
_REPR_LIMIT = 200
_BINARY = {letter: 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_SCALE = {"": 1, "b": 1, "bytes": 1}
for _letter, _factor in _BINARY.items():
    _SCALE[_letter.lower()] = _factor
    _SCALE[f"{_letter.lower()}ib"] = _factor
    _SCALE[f"{_letter.lower()}b"] = 1000 ** (list(_BINARY).index(_letter) + 1)

_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)")
_COUNT = re.compile(r"[0-9]{1,20}")


def parse_bytes(value: object, default_unit: str = "MiB", argument: str = "size") -> int:
    """A size in bytes, as int.

    value: a number (in ``default_unit``) or a string such as ``2``, ``512MiB``, ``1.5 G``. Raises
    InvalidInput if it is not a number, negative, zero, or has an unknown unit.
    """
    if isinstance(value, bool):
        raise InvalidInput(f"{argument} {value!r} is not a size")
    match = _SIZE.fullmatch(number_text(value))
    if not match:
        raise InvalidInput(
            f"{argument} {short_repr(value)} is not a positive size such as 512, 512MiB or 2G"
        )
    number, unit = match.groups()
    scale = _SCALE.get((unit or default_unit).lower())
    if scale is None:
        raise InvalidInput(f"{argument} {value!r}: unknown unit {unit!r}; use KiB, MiB, GiB or TiB")
    size = int(Decimal(number) * scale)
    if size <= 0:
        raise InvalidInput(f"{argument} {value!r} must be more than zero")
    return size


def parse_kib(value: object, default_unit: str = "MiB", argument: str = "memory") -> int:
    """A size in KiB, as int; accepts the same values as :func:`parse_bytes`."""
    size = parse_bytes(value, default_unit, argument)
    if size < 1024:
        raise InvalidInput(f"{argument} {value!r} is less than 1 KiB")
    return size // 1024


def is_number(text: str) -> bool:
    """Return whether the text is a whole number: ASCII digits, at most as many as a size has."""
    return _COUNT.fullmatch(text) is not None


def parse_count(value: Any, argument: str = "cpu") -> int:
    """A positive whole number, as int. Raises InvalidInput."""
    if isinstance(value, bool) or not _COUNT.fullmatch(number_text(value)):
        raise InvalidInput(f"{argument} {short_repr(value)} is not a positive whole number")
    number = int(value)
    if number < 1:
        raise InvalidInput(f"{argument} {value!r} must be at least 1")
    return number


def parse_number(value: Any, argument: str, maximum: float = 2**31 - 1) -> float:
    """A number from 0, such as seconds, as float. Raises InvalidInput."""
    fits = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if not fits or not re.fullmatch(r"[0-9]{1,20}(\.[0-9]+)?(e-[0-9]{1,3})?", number_text(value)):
        raise InvalidInput(f"{argument} must be a number from 0, not {short_repr(value)}")
    if float(value) > maximum:
        raise InvalidInput(
            f"{argument} must be a number from 0 to {maximum}, not {short_repr(value)}"
        )
    return float(value)


def number_text(number: object) -> str:
    """A number as text; empty if it is too long."""
    try:
        return str(number).strip()
    except ValueError:
        return ""


def short_repr(value: object) -> str:
    """An invalid value for an error message, limited in length."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with too many digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= _REPR_LIMIT else f"{text[:_REPR_LIMIT]} …"


def pluralize(number: float, noun: str) -> str:
    """``1 migration``, ``2 migrations``."""
    number_text = f"{number:g}" if isinstance(number, float) else number
    return f"{number_text} {noun}{'' if number == 1 else 's'}"


def human_bytes(size: float) -> str:
    """Format ``1536`` as ``1.5 KiB``: three significant digits, binary units."""
    number, larger = float(size), ["TiB", "GiB", "MiB", "KiB"]
    unit = "B"
    while number >= 1024 and larger:
        number, unit = number / 1024, larger.pop()
    is_whole = unit == "B" or number > 999
    return f"{number:.0f} {unit}" if is_whole else f"{number:.3g} {unit}"


def version_text(version: int) -> str:
    """Format a version number of libvirt or QEMU: 9000000 is ``9.0.0``."""
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
