"""Backup setting of a guest, stored in its metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt import units
from saltvirt.errors import InvalidInput

KEY = "backup"
_NO, _YES = "no", "yes"
_HOURS, _TO = "hours", "to"


@dataclass(frozen=True)
class BackupSchedule:
    """is_enabled: False: never back the guest up. hours: maximum age of its newest good backup;
    target: name of the target. None: use those of the caller."""

    is_enabled: bool = True
    hours: float | None = None
    target: str | None = None

    @property
    def text(self) -> str:
        """Canonical text of the setting, as stored."""
        if not self.is_enabled:
            return _NO
        parts = [f"{_HOURS}={self.hours!r}"] if self.hours is not None else []
        parts += [f"{_TO}={self.target}"] if self.target is not None else []
        return " ".join(parts) or _YES


def parse(value: object, label: str) -> BackupSchedule:
    """Parse True, False, or a mapping of ``hours`` and ``to``. Raises InvalidInput."""
    if isinstance(value, bool):
        return BackupSchedule(value)
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{label}: backup must be true, false, or a mapping with hours and to, not "
            f"{units.short_repr(value)}"
        )
    for key in value:
        if key not in (_HOURS, _TO):
            raise InvalidInput(
                f"{label}: backup: unknown {units.short_repr(key)}; known: hours, to"
            )
    hours, target = value.get(_HOURS), value.get(_TO)
    if target is not None and (
        not isinstance(target, str) or not target or len(target.split()) != 1
    ):
        raise InvalidInput(
            f"{label}: backup: to must be the name of a target, not {units.short_repr(target)}"
        )
    if hours is not None:
        hours = units.parse_number(hours, f"{label}: backup: hours")
    return BackupSchedule(True, hours, target)


def from_text(text: str | None) -> BackupSchedule | None:
    """Parse the stored text; None if it is missing or invalid."""
    if text in (_YES, _NO):
        return BackupSchedule(text == _YES)
    options = dict(word.split("=", 1) for word in (text or "").split() if "=" in word)
    if not options or set(options) - {_HOURS, _TO}:
        return None
    try:
        hours = float(options[_HOURS]) if _HOURS in options else None
    except ValueError:
        return None
    if hours is not None and (not math.isfinite(hours) or hours < 0):
        return None
    return BackupSchedule(True, hours, options.get(_TO))


def split_options(
    options: Mapping[str, Any], label: str
) -> tuple[dict[str, Any], BackupSchedule | None]:
    """Return (the options of a guest without its backup setting, the setting or None)."""
    rest = dict(options)
    value = rest.pop(KEY, None)
    return rest, None if value is None else parse(value, label)
