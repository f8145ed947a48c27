"""Hostile values of hosts, events, files and callers, and the places where they can occur."""

import random

import pytest

ESCAPES = "\x1b[2J\x1b]0;x\x07all is well\x9b1m\u202egnp.\u2066\r\x00\x7f"
NAMES = ("hv2", "web2", "../../etc/shadow", "a/b", "-h", "*", "web1\nhv2 is fine", ESCAPES, "..")


def nested(levels):
    """A list in a list in a list."""
    found = []
    for _ in range(levels):
        found = [found]
    return found


def dicts(levels):
    """A dictionary in a dictionary."""
    found = {}
    for _ in range(levels):
        found = {"a": found}
    return found


VALUES = (
    None, True, False, 0, 7, -1, 1.5, 2**63, 2**70, -(2**70), float("nan"), float("inf"), "", "7",
    b"\xff\x00\x1b[2J", [], {}, [None], [7], ["web2"], {"web2": "running"}, {7: 7}, {"": None},
    {"a": {"b": ["c"]}}, nested(300), dicts(300), nested(900), "x" * 10_000_000, *NAMES,
)  # fmt: skip


def show(value):
    """A value in the name of a test."""
    text = repr(value) if len(str(value)[:50]) < 50 else f"{str(value)[:20]}…"
    return text.encode("ascii", "backslashreplace").decode()[:40]


def places(data, path=()):
    """The path of every node: keys and indices from the outside in."""
    yield path
    inner = data.items() if isinstance(data, dict) else ()
    if isinstance(data, (list, tuple)):
        inner = enumerate(data)
    for key, value in inner:
        yield from places(value, (*path, key))


def replaced(data, path, value):
    """A copy with another value at the path."""
    if not path:
        return value
    found = dict(data) if isinstance(data, dict) else list(data)
    found[path[0]] = replaced(data[path[0]], path[1:], value)
    return found


def twisted(data, values=VALUES, names=NAMES):
    """(what was done, the data with one place wrong): each node replaced by each value, each key
    of a dictionary by each name, each taken away, and one more of each name in each list and
    dictionary."""
    for path in places(data):
        for value in values:
            yield (path, "=", value), replaced(data, path, value)
        node = data
        for key in path:
            node = node[key]
        if isinstance(node, dict) and node:
            some = next(iter(node.values()))
            for name in names:
                yield (path, "+", name), replaced(data, path, {**node, name: some})
            for key in node:
                rest = {k: v for k, v in node.items() if k != key}
                yield (path, "-", key), replaced(data, path, rest)
                for name in names:
                    yield (path, key, name), replaced(data, path, {**rest, name: node[key]})
        elif isinstance(node, list):
            for name in names:
                yield (path, "+", name), replaced(data, path, [*node, name])


def sample(cases, seed, most):
    """So many of the cases, by the seed; all when ``most`` is None."""
    found = list(cases)
    if most is None or len(found) <= most:
        return found
    return random.Random(seed).sample(found, most)


def only(*quick, of):
    """The rows of a table as parameters: those that are named by default, all when slow tests are
    asked for."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in of]


def texts(data):
    """Every text in data, keys too."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(data, (list, tuple, set, frozenset)):
        for one in data:
            yield from texts(one)
