"""Redaction of parts of texts that concern other guests, for users with limited rights.

Code that composes a message about other guests marks that part with :func:`sensitive`; the text
itself is unchanged. The answer for a user with limited rights collects all parts that were marked
meanwhile, here and on the queried hosts, and removes them from everything that is answered. It does
not depend on the text around a part, or on how often an error was wrapped.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from saltvirt import sanitize

# a text and its replacement
Redaction = tuple[str, str]

ANONYMOUS = "somebody"
# replacement of messages about other guests
REASONS = "the reasons concern other guests"
# replacement of the guests for which capacity is reserved
ROOM = "capacity is reserved for other guests"
# limits for the answer of a host, which may be hostile: further parts are ignored
_MAX_PARTS, _MAX_CHARS = 10_000, 500_000

# a call may compose texts in several threads, so each part goes to all collectors
_collectors: list[list[Redaction]] = []
_lock = threading.Lock()


def sensitive(text: str, replacement: str = ANONYMOUS) -> str:
    """Mark text about other guests. replacement: the text that limited users see instead."""
    if text and _collectors:
        with _lock:
            for collector in _collectors:
                collector.append((text, replacement))
    return text


def sensitive_names(names: Iterable[str]) -> str:
    """Mark a list of names of other guests: ``db1, db2``."""
    return sensitive(", ".join(names))


@contextlib.contextmanager
def collect() -> Iterator[list[Redaction]]:
    """Collect the parts that are marked during the block."""
    collector: list[Redaction] = []
    with _lock:
        _collectors.append(collector)
    try:
        yield collector
    finally:
        with _lock:
            _collectors[:] = [item for item in _collectors if item is not collector]


def redact(answer: Any, redactions: Iterable[Redaction]) -> Any:
    """Redact an answer, which is text or plain data."""
    # errors escape characters such as tabs
    replacements = {
        spelling: replacement
        for text, replacement in redactions
        for spelling in (text, sanitize.one_line(text, None))
    }
    text = "\n".join(_texts(answer))
    # an expression with many alternatives is slow, a search is not
    replacements = {
        part: replacement for part, replacement in replacements.items() if part and part in text
    }
    if not replacements:
        return answer
    longest_first = sorted(replacements, key=len, reverse=True)
    alternatives = "|".join(map(re.escape, longest_first))
    pattern = re.compile(rf"(?<![A-Za-z0-9_.-])(?:{alternatives})(?![A-Za-z0-9_-])")
    return _redact(answer, pattern, replacements)


def _texts(answer: Any) -> Iterator[str]:
    """Yield the texts that are redacted."""
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, (dict, list, tuple)):
        for item in answer.values() if isinstance(answer, dict) else answer:
            yield from _texts(item)


def _redact(answer: Any, pattern: re.Pattern[str], replacements: dict[str, str]) -> Any:
    if isinstance(answer, dict):
        return {key: _redact(item, pattern, replacements) for key, item in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_redact(item, pattern, replacements) for item in answer]
    if isinstance(answer, str):
        return pattern.sub(lambda match: replacements[match[0]], answer)
    return answer


def to_answer(redactions: Iterable[Redaction]) -> list[list[str]]:
    """The redactions as a host sends them, each once."""
    return [[text, replacement] for text, replacement in dict.fromkeys(redactions)]


def from_answer(data: object) -> None:
    """Mark the parts of a host's answer, ignoring invalid ones. The replacement is always ANONYMOUS
    or REASONS, whatever the host sent, because the redactions apply to all answers, also those of
    other hosts."""
    chars_left = _MAX_CHARS
    for item in data[:_MAX_PARTS] if isinstance(data, list) else ():
        is_part = isinstance(item, list) and len(item) == 2 and {*map(type, item)} == {str}
        if is_part and len(item[0]) <= chars_left:
            chars_left -= len(item[0])
            sensitive(item[0], REASONS if item[1] == REASONS else ANONYMOUS)
