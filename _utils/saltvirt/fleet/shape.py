"""Sanitize the answers and events of hosts before anything reads them: a host may be
compromised. answers.calls validates answers."""

from __future__ import annotations

import math
from typing import Any

from saltvirt import sanitize

NUMBER = (int, float)
# a chain of 200 backing files is what libvirt's own XML can hold
_DEEP = 400


def clean(data: Any, depth: int = 0) -> Any:
    """Return the data without escape sequences and control characters in its texts.

    Bytes become text; infinity and NaN become None. depth: the depth of this data. Raises
    RecursionError if the data is nested more deeply than any valid answer: Python's own limit
    differs between versions.
    """
    if depth > _DEEP:
        raise RecursionError(f"nested more than {_DEEP} deep")
    if isinstance(data, (bytes, bytearray)):
        data = data.decode(errors="replace")
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, str):
        return sanitize.text(data)
    if isinstance(data, dict):
        return {clean(key): clean(value, depth + 1) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [clean(item, depth + 1) for item in data]
    return data


def seconds(value: Any) -> float | None:
    """Return a duration from a host, or None if it is not valid."""
    good = isinstance(value, NUMBER) and not isinstance(value, bool)
    return value if good and math.isfinite(value) and value >= 0 else None


def step(value: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a host's step, with a valid percentage or none."""
    event: dict[str, Any] = clean(value)
    percent = event.get("percent")
    if isinstance(percent, bool) or not isinstance(percent, NUMBER):
        event.pop("percent", None)
    return event
