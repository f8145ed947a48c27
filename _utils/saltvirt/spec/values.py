"""Checks of single values. Each accepts (value, argument) and returns the parsed value."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, TypeVar

from saltvirt import sanitize, units
from saltvirt.errors import InvalidInput
from saltvirt.spec.base import REMOVE, mapping, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.spec.base import Parser, T

K = TypeVar("K")

_CPUSET = re.compile(r"\^?\d{1,9}(-\d{1,9})?(,\^?\d{1,9}(-\d{1,9})?)*")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")
_TRUE = {"true": True, "yes": True, "on": True, "1": True}
_FALSE = {"false": False, "no": False, "off": False, "0": False}


def count(value: Any, argument: str) -> int:
    """A whole number, at least 1."""
    return units.parse_count(value, argument)


def number(low: int = 0, high: int | None = None) -> Parser[int]:
    """A parser for whole numbers in a range."""

    def parse(value: Any, argument: str) -> int:
        if isinstance(value, bool) or not _INTEGER.fullmatch(units.number_text(value)):
            raise InvalidInput(f"{argument} {units.short_repr(value)} is not a whole number")
        result = int(value)
        if result < low or (high is not None and result > high):
            limit = f"from {low} to {high}" if high is not None else f"at least {low}"
            raise InvalidInput(f"{argument} {value!r} must be {limit}")
        return result

    return parse


def kib(value: Any, argument: str) -> int:
    """A size in KiB; numbers without a unit are MiB."""
    return units.parse_kib(value, "MiB", argument)


def size_bytes(value: Any, argument: str) -> int:
    """A size in bytes; numbers without a unit are MiB."""
    return units.parse_bytes(value, "MiB", argument)


def boolean(value: Any, argument: str) -> bool:
    """True or False; also yes, no, on, off, 1, 0."""
    result = {**_TRUE, **_FALSE}.get(str(value).lower())
    if result is None:
        raise InvalidInput(f"{argument} {value!r} is not true or false")
    return result


def flag(value: Any, argument: str) -> bool:
    """As ``boolean``; an empty value is False."""
    return boolean(value or False, argument)


def text(value: Any, argument: str) -> str:
    """Text without control characters, not empty."""
    is_text = value is not None and not isinstance(value, dict | list | bool)
    if not is_text or _CONTROL.search(str(value)) or str(value) == "":
        raise InvalidInput(f"{argument} {value!r} is not a text")
    return str(value)


def line(value: Any, argument: str) -> str:
    """Text on one line."""
    checked = text(value, argument)
    if len(checked.splitlines()) > 1 or checked[-1:] in "\r\n":
        raise InvalidInput(f"{argument} {value!r} is more than one line")
    return checked


def short(maximum: int) -> Parser[str]:
    """A parser for text of at most so many characters."""

    def parse(value: Any, argument: str) -> str:
        checked = text(value, argument)
        if len(checked) > maximum:
            raise InvalidInput(f"{argument} has more than {maximum} characters")
        return checked

    return parse


# a title is a column of lists; a description is a page, not a file
TITLE_CHARS, DESCRIPTION_CHARS, REASON_CHARS = 255, 8192, 200


def title(value: Any, argument: str) -> str:
    """Text on one line, as a column of lists shows it."""
    return short(TITLE_CHARS)(line(value, argument), argument)


def reason(value: object) -> str:
    """The reason of a maintenance, on one line."""
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    checked = sanitize.one_line(value, None) if is_text else ""
    if not checked:
        raise InvalidInput("reason must be a text that is not empty")
    return short(REASON_CHARS)(checked, "reason")


def label(value: Any, argument: str) -> str:
    """Text on one line without tabs, so that an XML attribute preserves it."""
    checked = line(value, argument)
    if "\t" in checked:
        raise InvalidInput(f"{argument} {value!r} has a tab")
    return checked


def secret(value: Any, argument: str) -> str:
    """Secret text, which errors do not show."""
    if not isinstance(value, str | int) or _CONTROL.search(str(value)) or str(value) == "":
        raise InvalidInput(f"{argument} is not a text")
    return str(value)


def word(value: Any, argument: str) -> str:
    """A name of letters, digits, ``_ . : + -``."""
    if not _WORD.fullmatch(str(value)):
        raise InvalidInput(f"{argument} {value!r} is not a name of letters, digits, '_', '.', '-'")
    return str(value)


def address(value: Any, argument: str) -> str:
    """A host name or address; an IPv6 address may begin with a colon, such as ``::``."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        return word(value, argument)


def path(value: Any, argument: str) -> str:
    """An absolute path with no ``..`` in it."""
    result = text(value, argument)
    if not result.startswith("/") or ".." in result.split("/"):
        raise InvalidInput(f"{argument} {value!r} is not an absolute path")
    return result


def choice(*choices: str) -> Parser[str]:
    """A parser for one of several words."""

    def parse(value: Any, argument: str) -> str:
        if str(value) not in choices:
            raise unknown(value, choices, argument)
        return str(value)

    return parse


def paths(value: Any, argument: str) -> list[str]:
    """A list of paths."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InvalidInput(f"{argument} {value!r} is not a list of paths")
    return list(value)


def cpuset(value: Any, argument: str) -> str:
    """A set of CPUs or nodes, ``0-3,^2`` or a number, as libvirt writes it: ``0-1,3``."""
    text = str(value).replace(" ", "")
    if not _CPUSET.fullmatch(text):
        raise InvalidInput(
            f"{argument} {units.short_repr(value)} is not a set of numbers such as 0-3,^2,8"
        )
    chosen = numbers(text)
    if not chosen:
        raise InvalidInput(f"{argument} {value!r} is an empty set")
    return ranges(chosen)


def numbers(text: str | None) -> set[int]:
    """``0-3,^2`` as {0, 1, 3}; an empty set if there is no text."""
    chosen: set[int] = set()
    for item in text.split(",") if text else ():
        first, _, last = item.lstrip("^").partition("-")
        span = range(int(first), min(int(last or first), 65535) + 1)
        chosen = chosen - set(span) if item.startswith("^") else chosen | set(span)
    return chosen


def ranges(chosen: Iterable[int]) -> str:
    """{0, 1, 3} as ``0-1,3``."""
    runs: list[list[int]] = []
    for number in sorted(chosen):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


def mac(value: Any, argument: str) -> str:
    """A unicast MAC address, in lower case."""
    result = str(value).lower().replace("-", ":")
    if not _MAC.fullmatch(result):
        raise InvalidInput(f"{argument} {value!r} is not a MAC address such as 52:54:00:12:34:56")
    if int(result[:2], 16) & 1:
        raise InvalidInput(
            f"{argument} {value!r} is a multicast address: its first byte must be even"
        )
    return result


def port(value: Any, argument: str) -> int:
    """A TCP or UDP port."""
    return number(1, 65535)(value, argument)


def list_of(parse: Parser[T]) -> Parser[list[T]]:
    """A parser for a list whose items ``parse`` checks."""

    def parse_list(value: Any, argument: str) -> list[T]:
        if not isinstance(value, list | tuple):
            raise InvalidInput(f"{argument} must be a list, not {value!r}")
        return [parse(item, f"{argument}[{index}]") for index, item in enumerate(value)]

    return parse_list


def map_of(parse_key: Parser[K], parse: Parser[T]) -> Parser[dict[K, T]]:
    """A parser for a dictionary with arbitrary keys; the value ``None`` means "remove"."""

    def parse_map(value: Any, argument: str) -> dict[K, T]:
        result = {}
        for name, item in mapping(value, argument).items():
            parsed_key = parse_key(name, argument)
            result[parsed_key] = REMOVE if item is None else parse(item, f"{argument}:{name}")
        return result

    return parse_map
