"""A list that is told in several answers: Salt cuts an answer of more than 1 MiB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

BYTES = 256 * 1024


def page(answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """So many of them as one answer takes, one at least."""
    found, length = [], 0
    for one in answers:
        found.append(one)
        length += _length(one)
        if length >= BYTES:
            break
    return found


def is_last(found: Sequence[Any]) -> bool:
    """Whether there is nothing behind what was told: else the answer would be longer."""
    return sum(_length(one) for one in found) < BYTES


def _length(one: object) -> int:
    return len(json.dumps(one))
