"""What a web server says of the bytes that it sends, held against what was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt import errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    from saltvirt.images.sources import Version

_KEYS = ("ETag", "Last-Modified", "Content-Length")
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_PLAIN = (None, "", "identity")


class UnusableAnswer(OSError):
    """The answer does not go on where we are: what is there cannot be completed with it."""


@dataclass(frozen=True)
class BodyRange:
    """start, end: which bytes of the file are sent; end is None where nobody says. total: how long
    the file is, or None. version: what was said of it, see :func:`version`."""

    start: int
    end: int | None
    total: int | None
    version: Version


def version(headers: Message) -> Version:
    """What tells a file from another one at the same address: its ETag, date and size."""
    return {key: headers[key] for key in _KEYS if headers[key]}


def length(expected: Version) -> int | None:
    """The bytes of a version, None where it says none. Some servers say 0 for all they make up."""
    text = expected.get("Content-Length", "")
    return int(text) or None if re.fullmatch("[0-9]{1,19}", text) else None


def validator(expected: Version) -> str | None:
    """By what a server can be asked whether its file is still of this version; None without."""
    strong = expected.get("ETag", "").startswith('"')
    return expected["ETag"] if strong else expected.get("Last-Modified")


def judge(status: int, headers: Message, have: int, expected: Version) -> BodyRange:
    """The Sent of an answer.

    have: the bytes that are there, of the version ``known``; the rest was asked for.
    Raises Unfit, and ImageError for what would be the same next time.
    """
    for name, plain in (("Content-Encoding", _PLAIN), ("Transfer-Encoding", (None, "chunked"))):
        word = headers[name]
        if (word.lower() if word else word) not in plain:
            raise errors.ImageError(f"the server sends it with {name} {word}, not as it is")
    if status == 206 and have:
        return _partial(headers, have, expected)
    if status != 200:
        raise errors.ImageError(f"the server answers with HTTP {status}")
    return _complete(headers, expected)


def _complete(headers: Message, expected: Version) -> BodyRange:
    """All of the file, maybe of another version. Where several servers have one address, each may
    have an ETag and a date of its own for the same file, but no other length."""
    actual, expected_bytes = version(headers), length(expected)
    if "Content-Length" in actual and length(actual) is None:
        raise UnusableAnswer(f"its Content-Length is {actual['Content-Length']!r}")
    total = length(actual) or expected_bytes
    if expected_bytes and total != expected_bytes:
        raise errors.ImageError(
            f"it had {expected_bytes} bytes when the server was asked, and has {total} now: it "
            f"changed, "
            "try again"
        )
    return BodyRange(0, total, total, {**expected, **actual})


def _partial(headers: Message, have: int, expected: Version) -> BodyRange:
    """What is still missing, of the same version, or a part of it."""
    match = _RANGE.fullmatch((headers["Content-Range"] or "").strip())
    if not match:
        raise UnusableAnswer("it sends a part and does not say which")
    first, last = int(match[1]), int(match[2])
    total = length(expected) or (int(match[3]) if match[3] != "*" else None)
    wrong = [
        first != have,
        total is None or not first <= last < total,
        match[3] not in ("*", str(total)),
        headers["Content-Length"] not in (None, str(last - first + 1)),
        *(headers[key] not in allowed for key, allowed in _same(expected)),
    ]
    if any(wrong):
        raise UnusableAnswer(
            "it sends another part than the one that was asked for, or of another file"
        )
    return BodyRange(first, last + 1, total, expected)


def _same(expected: Version) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """What each header may be in the rest of this version."""
    for key in ("ETag", "Last-Modified"):
        if key in expected:
            yield (
                key,
                (expected[key],) if expected[key] == validator(expected) else (None, expected[key]),
            )
