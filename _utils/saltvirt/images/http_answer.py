"""Check a web server's response against the request."""

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
    """The response does not continue the partial file."""


@dataclass(frozen=True)
class BodyRange:
    """start, end: the range of the file that is sent; end is None if unknown. total: length of the
    file, or None. version: of the file, see :func:`version`."""

    start: int
    end: int | None
    total: int | None
    version: Version


def version(headers: Message) -> Version:
    """The headers that identify a version of a file: ETag, date and size."""
    return {key: headers[key] for key in _KEYS if headers[key]}


def length(expected: Version) -> int | None:
    """The size of a version, or None. Some servers report 0 for generated content."""
    text = expected.get("Content-Length", "")
    return int(text) or None if re.fullmatch("[0-9]{1,19}", text) else None


def validator(expected: Version) -> str | None:
    """The value by which a server can be asked whether the version is still current, or None."""
    strong = expected.get("ETag", "").startswith('"')
    return expected["ETag"] if strong else expected.get("Last-Modified")


def judge(status: int, headers: Message, have: int, expected: Version) -> BodyRange:
    """The BodyRange of a response.

    have: number of bytes that exist of the ``expected`` version; the rest was requested. Raises
    UnusableAnswer, and ImageError if a retry would fail, too.
    """
    for name, plain in (("Content-Encoding", _PLAIN), ("Transfer-Encoding", (None, "chunked"))):
        word = headers[name]
        if (word.lower() if word else word) not in plain:
            raise errors.ImageError(
                f"the server sends it with {name} {word}, which is not supported"
            )
    if status == 206 and have:
        return _partial(headers, have, expected)
    if status != 200:
        raise errors.ImageError(f"the server responded with HTTP {status}")
    return _complete(headers, expected)


def _complete(headers: Message, expected: Version) -> BodyRange:
    """The whole file, possibly of another version. Several servers behind one address may send
    different ETags and dates for the same file, but not different lengths."""
    actual, expected_bytes = version(headers), length(expected)
    if "Content-Length" in actual and length(actual) is None:
        raise UnusableAnswer(f"the Content-Length is {actual['Content-Length']!r}")
    total = length(actual) or expected_bytes
    if expected_bytes and total != expected_bytes:
        raise errors.ImageError(
            f"the file had {expected_bytes} bytes at first and has {total} now: it "
            "changed, try again"
        )
    return BodyRange(0, total, total, {**expected, **actual})


def _partial(headers: Message, have: int, expected: Version) -> BodyRange:
    """The remaining bytes of the same version, or a part of them."""
    match = _RANGE.fullmatch((headers["Content-Range"] or "").strip())
    if not match:
        raise UnusableAnswer("the server sent a partial response without Content-Range")
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
        raise UnusableAnswer("the server sent another range than requested, or another file")
    return BodyRange(first, last + 1, total, expected)


def _same(expected: Version) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """The allowed values of each header in the rest of this version."""
    for key in ("ETag", "Last-Modified"):
        if key in expected:
            yield (
                key,
                (expected[key],) if expected[key] == validator(expected) else (None, expected[key]),
            )
