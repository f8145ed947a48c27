"""Dataclasses made from a user's dictionaries.

A class lists its keys with the function that checks each::

    @dataclass
    class Topology(Part):
        sockets: int | None = key(values.count)

``None`` in a field means that the user did not say; :data:`REMOVE` that the user wrote
``None`` (``null`` in YAML), which in an update takes the setting away.
"""

import difflib
from dataclasses import dataclass, field, fields

from saltvirt import units
from saltvirt.errors import InvalidInput


class _Remove:
    def __repr__(self):
        return "REMOVE"

    def __bool__(self):
        return False

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


REMOVE = _Remove()


def key(parse, name=None, repr=True):
    """A field of a Part. ``parse(value, what)`` checks; ``name`` is the user's word for it."""
    return field(default=None, repr=repr, metadata={"parse": parse, "name": name})


def given(value):
    """The value, or None where the user said nothing or to remove it."""
    return None if value is REMOVE else value


def unknown(word, known, what):
    """The error for a word that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(str(word), [str(k) for k in known], n=1)
    hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
    return InvalidInput(f"{what}: unknown {word!r}{hint}")


def mapping(value, what):
    """The value, when it is a dictionary. Raises InvalidInput."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a dictionary, not {units.shown(value)}")
    return value


@dataclass
class Part:
    """A dictionary of the user, checked."""

    NONE_REMOVES = True

    @classmethod
    def keys(cls):
        """The user's words for the fields, with the fields."""
        return {f.metadata["name"] or f.name: f for f in fields(cls) if f.metadata}

    @classmethod
    def parse(cls, value, what):
        """A Part from a dictionary; ``what`` names it in errors, e.g. ``cpu:topology``.

        Raises InvalidInput for an unknown key or a wrong value.
        """
        found, known = {}, cls.keys()
        for word, item in mapping(value, what).items():
            if str(word).startswith("__"):
                continue
            if word not in known:
                raise unknown(word, known, what)
            entry = known[word]
            if item is None:
                found[entry.name] = REMOVE if cls.NONE_REMOVES else None
            else:
                found[entry.name] = entry.metadata["parse"](item, f"{what}:{word}")
        part = cls(**found)
        part.check(what)
        return part

    def check(self, what):
        """For what a single value cannot show. Raises InvalidInput."""


def part(cls):
    """A parser for a key whose value is itself a dictionary."""
    return cls.parse
