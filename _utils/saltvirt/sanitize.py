"""Sanitize untrusted text for terminals, logs and job returns.

The text may come from a guest, an image, a tool or another host.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

MAX_LENGTH = 8000  # of a line, in characters
_TAIL = 1000
# control characters except newline and tab, and characters that change the text direction
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_SURROGATES = re.compile("[\ud800-\udfff]")  # surrogates, which cannot be encoded
_UNPRINTABLE = re.compile(f"{_INVISIBLE.pattern}|{_SURROGATES.pattern}")


def text(value: str) -> str:
    """The text without escape sequences and control characters, except newlines and tabs."""
    value = _SURROGATES.sub("\ufffd", value)
    return _INVISIBLE.sub("", _ESCAPE.sub("", value)) if _INVISIBLE.search(value) else value


def one_line(value: object, max_length: int | None = MAX_LENGTH) -> str:
    """The text as one line of limited length, with control characters escaped.

    max_length: None for a list of names, which is not shortened.
    """
    value = str(value)
    if max_length and len(value) > max_length:
        value = f"{value[: max_length - _TAIL]} … {value[-_TAIL:]}"
    parts = (part.strip() for part in re.split(r"[\r\n\t\v\f]", value))
    return _UNPRINTABLE.sub(_escaped, " ".join(part for part in parts if part))


def address(source: str) -> str:
    """The address of an image without secrets, for messages and records: without a password, and
    without the query of a web address, which may be a signature."""
    try:
        parts = urlsplit(source)
    except ValueError:
        return re.sub(r"//[^/@]*@", "//…@", source)
    if parts.scheme in ("http", "https") and parts.query:
        parts = parts._replace(query="…")
    if "@" in parts.netloc:
        parts = parts._replace(netloc="…@" + parts.netloc.rsplit("@", 1)[1])
    return urlunsplit(parts) if parts.netloc else source


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
