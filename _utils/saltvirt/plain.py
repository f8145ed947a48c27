"""Text that others wrote, made fit for a terminal, a log and a job's return.

A guest, an image, a tool or another host may have put anything into it.
"""

from __future__ import annotations

import re

LONGEST = 8000  # of a line, in characters
_TAIL = 1000
# control characters but the new line and the tab, and those that turn the direction of a text
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_HALF = re.compile("[\ud800-\udfff]")  # no character: it cannot be written anywhere
_NO_WORD = re.compile(f"{_UNSEEN.pattern}|{_HALF.pattern}")


def text(value: str) -> str:
    """The text without escape sequences and control characters; new lines and tabs stay."""
    value = _HALF.sub("\ufffd", value)
    return _UNSEEN.sub("", _ESCAPE.sub("", value)) if _UNSEEN.search(value) else value


def line(value: object, longest: int | None = LONGEST) -> str:
    """The text as one line of bounded length, in which control characters are spelled out.

    longest: None for one that names many, and is as long as they are many.
    """
    value = str(value)
    if longest and len(value) > longest:
        value = f"{value[: longest - _TAIL]} … {value[-_TAIL:]}"
    parts = (part.strip() for part in re.split(r"[\r\n\t\v\f]", value))
    return _NO_WORD.sub(_spelled, " ".join(part for part in parts if part))


def _spelled(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")
