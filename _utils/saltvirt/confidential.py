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

from saltvirt import plain

# a part and what stands in its place
Part = tuple[str, str]

SOMEBODY = "somebody"
# in place of sentences about them
REASONS = "the reasons concern other guests"
# in place of the guests for which there would be no room
ROOM = "room is kept for other guests"
# of one answer of a host, which may be hostile: more and longer parts are passed over
_MOST, _LONGEST = 10_000, 100_000

# a call may compose its texts in several threads, so each part is known to all who collect
_collecting: list[list[Part]] = []
_lock = threading.Lock()


def part(text: str, instead: str = SOMEBODY) -> str:
    """The text, which tells of other guests. instead: what others get to read in its place."""
    if text and _collecting:
        with _lock:
            for found in _collecting:
                found.append((text, instead))
    return text


def listed(names: Iterable[str]) -> str:
    """The names of other guests as a part: ``db1, db2``."""
    return part(", ".join(names))


@contextlib.contextmanager
def collected() -> Iterator[list[Part]]:
    """The parts that are composed in the block."""
    found: list[Part] = []
    with _lock:
        _collecting.append(found)
    try:
        yield found
    finally:
        with _lock:
            _collecting[:] = [one for one in _collecting if one is not found]


def cut(told: Any, parts: Iterable[Part]) -> Any:
    """An answer without the parts: a text, or plain data of texts."""
    # an error spells out what a line cannot have, such as a tab
    known = {one: instead for text, instead in parts for one in (text, plain.line(text, None))}
    known.pop("", None)
    if not known:
        return told
    longest_first = sorted(known, key=len, reverse=True)
    words = "|".join(map(re.escape, longest_first))
    pattern = re.compile(rf"(?<![A-Za-z0-9_.-])(?:{words})(?![A-Za-z0-9_-])")
    return _cut(told, pattern, known)


def _cut(told: Any, pattern: re.Pattern[str], known: dict[str, str]) -> Any:
    if isinstance(told, dict):
        return {word: _cut(one, pattern, known) for word, one in told.items()}
    if isinstance(told, (list, tuple)):
        return [_cut(one, pattern, known) for one in told]
    if isinstance(told, str):
        return pattern.sub(lambda match: known[match[0]], told)
    return told


def to_answer(parts: Iterable[Part]) -> list[list[str]]:
    """As a host sends them, each once."""
    return [[text, instead] for text, instead in dict.fromkeys(parts)]


def from_answer(sent: object) -> None:
    """Marks the parts that a host sent; what is no part is none. In its place stands SOMEBODY or
    REASONS, whatever the host sent: all answers are cut by it, also those of other hosts."""
    for one in sent[:_MOST] if isinstance(sent, list) else ():
        is_part = isinstance(one, list) and len(one) == 2 and {*map(type, one)} == {str}
        if is_part and len(one[0]) <= _LONGEST:
            part(one[0], REASONS if one[1] == REASONS else SOMEBODY)
