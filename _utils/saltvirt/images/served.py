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


class Unfit(OSError):
    """The answer does not go on where we are: what is there cannot be completed with it."""


@dataclass(frozen=True)
class Sent:
    """start, end: which bytes of the file are sent; end is None where nobody says. total: how long
    the file is, or None. version: what was said of it, see :func:`version`."""

    start: int
    end: int | None
    total: int | None
    version: Version


def version(headers: Message) -> Version:
    """What tells a file from another one at the same address: its ETag, date and size."""
    return {key: headers[key] for key in _KEYS if headers[key]}


def length(known: Version) -> int | None:
    """The bytes of a version, None where it says none. Some servers say 0 for all they make up."""
    text = known.get("Content-Length", "")
    return int(text) or None if re.fullmatch("[0-9]{1,19}", text) else None


def validator(known: Version) -> str | None:
    """By what a server can be asked whether its file is still of this version; None without."""
    strong = known.get("ETag", "").startswith('"')
    return known["ETag"] if strong else known.get("Last-Modified")


def judge(status: int, headers: Message, have: int, known: Version) -> Sent:
    """The Sent of an answer.

    have: the bytes that are there, of the version ``known``; the rest was asked for.
    Raises Unfit, and ImageError for what would be the same next time.
    """
    for name, plain in (("Content-Encoding", _PLAIN), ("Transfer-Encoding", (None, "chunked"))):
        word = headers[name]
        if (word.lower() if word else word) not in plain:
            raise errors.ImageError(f"the server sends it with {name} {word}, not as it is")
    if status == 206 and have:
        return _rest(headers, have, known)
    if status != 200:
        raise errors.ImageError(f"the server answers with HTTP {status}")
    return _whole(headers, known)


def _whole(headers: Message, known: Version) -> Sent:
    """All of the file, maybe of another version. Where several servers have one address, each may
    have an ETag and a date of its own for the same file, but no other length."""
    found, was = version(headers), length(known)
    if "Content-Length" in found and length(found) is None:
        raise Unfit(f"its Content-Length is {found['Content-Length']!r}")
    total = length(found) or was
    if was and total != was:
        raise errors.ImageError(
            f"it had {was} bytes when the server was asked, and has {total} now: it changed, "
            "try again"
        )
    return Sent(0, total, total, {**known, **found})


def _rest(headers: Message, have: int, known: Version) -> Sent:
    """What is still missing, of the same version, or a part of it."""
    found = _RANGE.fullmatch((headers["Content-Range"] or "").strip())
    if not found:
        raise Unfit("it sends a part and does not say which")
    first, last = int(found[1]), int(found[2])
    total = length(known) or (int(found[3]) if found[3] != "*" else None)
    wrong = [
        first != have,
        total is None or not first <= last < total,
        found[3] not in ("*", str(total)),
        headers["Content-Length"] not in (None, str(last - first + 1)),
        *(headers[key] not in allowed for key, allowed in _same(known)),
    ]
    if any(wrong):
        raise Unfit("it sends another part than the one that was asked for, or of another file")
    return Sent(first, last + 1, total, known)


def _same(known: Version) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """What each header may be in the rest of this version."""
    for key in ("ETag", "Last-Modified"):
        if key in known:
            yield key, (known[key],) if known[key] == validator(known) else (None, known[key])
