"""The parts of a text that tell of other guests, for whoever may see these guests alone.

Who composes a sentence that names other guests marks that part with :func:`part`: the text stays
as it is. Whoever answers a user with limited rights collects the parts that were composed
meanwhile, here and on the hosts that were asked, and cuts them out of all that is answered. So the
words around a part decide nothing, and neither does how often its error was wrapped.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from saltvirt import sanitize

# a part and what stands in its place
Redaction = tuple[str, str]

ANONYMOUS = "somebody"
# in place of sentences about them
REASONS = "the reasons concern other guests"
# in place of the guests for which there would be no room
ROOM = "room is kept for other guests"
# of one answer of a host, which may be hostile: more and longer parts are passed over
_MAX_PARTS, _MAX_LENGTH = 10_000, 100_000

# a call may compose its texts in several threads, so each part is known to all who collect
_collectors: list[list[Redaction]] = []
_lock = threading.Lock()


def sensitive(text: str, replacement: str = ANONYMOUS) -> str:
    """The text, which tells of other guests. replacement: what others get to read in its place."""
    if text and _collectors:
        with _lock:
            for collector in _collectors:
                collector.append((text, replacement))
    return text


def sensitive_names(names: Iterable[str]) -> str:
    """The names of other guests as a part: ``db1, db2``."""
    return sensitive(", ".join(names))


@contextlib.contextmanager
def collect() -> Iterator[list[Redaction]]:
    """The parts that are composed in the block."""
    collector: list[Redaction] = []
    with _lock:
        _collectors.append(collector)
    try:
        yield collector
    finally:
        with _lock:
            _collectors[:] = [item for item in _collectors if item is not collector]


def redact(answer: Any, redactions: Iterable[Redaction]) -> Any:
    """An answer without the parts: a text, or plain data of texts."""
    # an error spells out what a line cannot have, such as a tab
    replacements = {
        spelling: instead
        for text, instead in redactions
        for spelling in (text, sanitize.one_line(text, None))
    }
    replacements.pop("", None)
    if not replacements:
        return answer
    longest_first = sorted(replacements, key=len, reverse=True)
    alternatives = "|".join(map(re.escape, longest_first))
    pattern = re.compile(rf"(?<![A-Za-z0-9_.-])(?:{alternatives})(?![A-Za-z0-9_-])")
    return _redact(answer, pattern, replacements)


def _redact(answer: Any, pattern: re.Pattern[str], replacements: dict[str, str]) -> Any:
    if isinstance(answer, dict):
        return {word: _redact(item, pattern, replacements) for word, item in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_redact(item, pattern, replacements) for item in answer]
    if isinstance(answer, str):
        return pattern.sub(lambda match: replacements[match[0]], answer)
    return answer


def to_answer(redactions: Iterable[Redaction]) -> list[list[str]]:
    """As a host sends them, each once."""
    return [[text, replacement] for text, replacement in dict.fromkeys(redactions)]


def from_answer(data: object) -> None:
    """Marks the parts that a host sent; what is no part is none. In its place stands SOMEBODY or
    REASONS, whatever the host sent: all answers are cut by it, also those of other hosts."""
    for item in data[:_MAX_PARTS] if isinstance(data, list) else ():
        is_part = isinstance(item, list) and len(item) == 2 and {*map(type, item)} == {str}
        if is_part and len(item[0]) <= _MAX_LENGTH:
            sensitive(item[0], REASONS if item[1] == REASONS else ANONYMOUS)
