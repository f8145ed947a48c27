"""How a guest is to be backed up, as it says itself: kept in its record, which goes with it."""

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
class Wish:
    """is_wanted: False: it is to have none. hours: so old may its last good backup be; to: the
    target. None: as who asks for those that are due says."""

    is_wanted: bool = True
    hours: float | None = None
    to: str | None = None

    @property
    def text(self) -> str:
        """As it is kept, in one way alone."""
        if not self.is_wanted:
            return _NO
        words = [f"{_HOURS}={self.hours!r}"] if self.hours is not None else []
        words += [f"{_TO}={self.to}"] if self.to is not None else []
        return " ".join(words) or _YES


def parse(given: object, label: str) -> Wish:
    """What was said: True, False, or a mapping of ``hours`` and ``to``. Raises InvalidInput."""
    if isinstance(given, bool):
        return Wish(given)
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"{label}: backup must be true, false, or a mapping of hours and to, not "
            f"{units.shown(given)}"
        )
    for key in given:
        if key not in (_HOURS, _TO):
            raise InvalidInput(f"{label}: backup: unknown {units.shown(key)}; known: hours, to")
    hours, to = given.get(_HOURS), given.get(_TO)
    if to is not None and (not isinstance(to, str) or not to or len(to.split()) != 1):
        raise InvalidInput(
            f"{label}: backup: to must be the name of a target, not {units.shown(to)}"
        )
    if hours is not None:
        hours = units.parse_number(hours, f"{label}: backup: hours")
    return Wish(True, hours, to)


def of_text(text: str | None) -> Wish | None:
    """What is kept; None where nothing is, or nobody can read it."""
    if text in (_YES, _NO):
        return Wish(text == _YES)
    found = dict(word.split("=", 1) for word in (text or "").split() if "=" in word)
    if not found or set(found) - {_HOURS, _TO}:
        return None
    try:
        hours = float(found[_HOURS]) if _HOURS in found else None
    except ValueError:
        return None
    if hours is not None and (not math.isfinite(hours) or hours < 0):
        return None
    return Wish(True, hours, found.get(_TO))


def taken(options: Mapping[str, Any], label: str) -> tuple[dict[str, Any], Wish | None]:
    """(a guest's options without what it says of backups, that): None where it says nothing."""
    rest = dict(options)
    given = rest.pop(KEY, None)
    return rest, None if given is None else parse(given, label)
