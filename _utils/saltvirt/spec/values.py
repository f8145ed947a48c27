"""Checks of single values. Each takes (value, what) and returns what to use."""

import ipaddress
import re

from saltvirt import units
from saltvirt.errors import InvalidInput
from saltvirt.spec.base import REMOVE, mapping, unknown

_CPUSET = re.compile(r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_TRUE = {"true": True, "yes": True, "on": True, "1": True}
_FALSE = {"false": False, "no": False, "off": False, "0": False}


def count(value, what):
    """A whole number, at least 1."""
    return units.parse_count(value, what)


def number(low=0, high=None):
    """A parser for whole numbers in a range."""

    def parse(value, what):
        if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value).strip()):
            raise InvalidInput(f"{what} {value!r} is not a whole number")
        result = int(value)
        if result < low or (high is not None and result > high):
            limit = f"from {low} to {high}" if high is not None else f"at least {low}"
            raise InvalidInput(f"{what} {value!r} must be {limit}")
        return result

    return parse


def kib(value, what):
    """A size in KiB; numbers without a unit are MiB."""
    return units.parse_kib(value, "MiB", what)


def size_bytes(value, what):
    """A size in bytes; numbers without a unit are MiB."""
    return units.parse_bytes(value, "MiB", what)


def boolean(value, what):
    """True or False; also yes, no, on, off, 1, 0."""
    result = {**_TRUE, **_FALSE}.get(str(value).lower())
    if result is None:
        raise InvalidInput(f"{what} {value!r} is not true or false")
    return result


def text(value, what):
    """Text without control characters, not empty."""
    if isinstance(value, dict | list | bool) or _CONTROL.search(str(value)) or str(value) == "":
        raise InvalidInput(f"{what} {value!r} is not a text")
    return str(value)


def secret(value, what):
    """Text that no error shows."""
    if not isinstance(value, str | int) or _CONTROL.search(str(value)) or str(value) == "":
        raise InvalidInput(f"{what} is not a text")
    return str(value)


def word(value, what):
    """A name of letters, digits, ``_ . : + -``."""
    if not _WORD.fullmatch(str(value)):
        raise InvalidInput(f"{what} {value!r} is not a name of letters, digits, '_', '.', '-'")
    return str(value)


def address(value, what):
    """A host's name or address; one of IPv6 may begin with a colon, as ``::`` does."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        return word(value, what)


def path(value, what):
    """An absolute path with no ``..`` in it."""
    result = text(value, what)
    if not result.startswith("/") or ".." in result.split("/"):
        raise InvalidInput(f"{what} {value!r} is not an absolute path")
    return result


def choice(*words):
    """A parser for one word of a few."""

    def parse(value, what):
        if str(value) not in words:
            raise unknown(value, words, what)
        return str(value)

    return parse


def cpuset(value, what):
    """A set of CPUs or nodes, ``0-3,^2`` or a number, as libvirt writes it: ``0-1,3``."""
    text = str(value).replace(" ", "")
    if not _CPUSET.fullmatch(text):
        raise InvalidInput(f"{what} {value!r} is not a set of numbers such as 0-3,^2,8")
    chosen = numbers(text)
    if not chosen:
        raise InvalidInput(f"{what} {value!r} is an empty set")
    return ranges(chosen)


def numbers(text):
    """``0-3,^2`` as {0, 1, 3}; none for no text."""
    chosen = set()
    for item in text.split(",") if text else ():
        first, _, last = item.lstrip("^").partition("-")
        found = range(int(first), min(int(last or first), 65535) + 1)
        chosen = chosen - set(found) if item.startswith("^") else chosen | set(found)
    return chosen


def ranges(chosen):
    """{0, 1, 3} as ``0-1,3``."""
    runs = []
    for number in sorted(chosen):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


def mac(value, what):
    """A MAC address of one interface, in lower case."""
    result = str(value).lower().replace("-", ":")
    if not _MAC.fullmatch(result):
        raise InvalidInput(f"{what} {value!r} is not a MAC address such as 52:54:00:12:34:56")
    if int(result[:2], 16) & 1:
        raise InvalidInput(f"{what} {value!r} is a multicast address: its first byte must be even")
    return result


def port(value, what):
    """A TCP or UDP port."""
    return number(1, 65535)(value, what)


def list_of(parse):
    """A parser for a list whose items ``parse`` checks."""

    def parse_list(value, what):
        if not isinstance(value, list | tuple):
            raise InvalidInput(f"{what} must be a list, not {value!r}")
        return [parse(item, f"{what}[{at}]") for at, item in enumerate(value)]

    return parse_list


def map_of(parse_key, parse):
    """A parser for a dictionary with free keys; ``None`` as a value means remove."""

    def parse_map(value, what):
        result = {}
        for name, item in mapping(value, what).items():
            known = parse_key(name, what)
            result[known] = REMOVE if item is None else parse(item, f"{what}:{name}")
        return result

    return parse_map
