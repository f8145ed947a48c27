"""Paging of long lists: Salt truncates answers of more than 1 MiB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

BYTES = 256 * 1024


def page(answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return as many answers as fit into one page, at least one."""
    chunk, length = [], 0
    for answer in answers:
        chunk.append(answer)
        length += _length(answer)
        if length >= BYTES:
            break
    return chunk


def is_last(answers: Sequence[Any]) -> bool:
    """Whether the page is the last one, because more would have fit.

    Half of a page is the limit: a host of another version may have sent keys that were ignored.
    """
    return sum(_length(answer) for answer in answers) < BYTES / 2


def _length(answer: object) -> int:
    return len(json.dumps(answer))
