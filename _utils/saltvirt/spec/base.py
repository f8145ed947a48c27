"""Base of dataclasses that are parsed from a user's dictionaries.

A class declares its keys with the function that checks each::

    @dataclass
    class TopologySpec(Spec):
        sockets: int | None = key(values.count, xml=Cpu.sockets)

A field with ``xml`` is a setting that is copied to that property of an element; see
:func:`saltvirt.design.put.put`.

``None`` in a field means that the user did not give it; :data:`REMOVE` that the user gave ``None``
(``null`` in YAML), which in an update removes the setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from saltvirt.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from saltvirt.xml.base import Prop


class _Remove:
    def __repr__(self) -> str:
        return "REMOVE"

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Remove:
        return self


# of any type: a field of a Part holds it in the place of its value
REMOVE: Any = _Remove()

T = TypeVar("T")
P = TypeVar("P", bound="Spec")
# checks a value; the text names the argument in errors
Parser = Callable[[Any, str], T]


def key(
    parse: Parser[Any],
    name: str | None = None,
    repr: bool = True,
    xml: Prop[Any] | type[Spec] | None = None,
    required: bool = False,
) -> Any:
    """Declare a field of a Spec. ``parse(value, argument)`` checks the value; ``name`` is the
    user's name of the field; ``xml`` the property of an element to which the value is copied, or
    the class of a nested Spec whose fields have such properties; ``required``: the user must give
    a value that is not empty."""
    metadata = {"parse": parse, "name": name, "xml": xml, "required": required}
    return field(default=None, repr=repr, metadata=metadata)


def value_or_none(value: T | None) -> T | None:
    """The value, or None if the user gave none or REMOVE."""
    return None if value is REMOVE else value


def unknown(word: object, choices: Collection[Any], argument: str) -> InvalidInput:
    """The error for an unknown word, with the closest valid one."""
    near = difflib.get_close_matches(str(word), [str(k) for k in choices], n=1)
    hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(choices))}"
    return InvalidInput(f"{argument}: unknown {word!r}{hint}")


def mapping(value: Any, argument: str) -> dict[Any, Any]:
    """The value, if it is a dictionary. Raises InvalidInput without the value, which may contain a
    password."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{argument} must be a dictionary, not {type(value).__name__}")
    return value


@dataclass
class Spec:
    """A checked dictionary of the user."""

    NONE_REMOVES = True
    # fields for which ``None`` still means "not given": the identity of a device, not its settings
    NONE_LEAVES: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def keys(cls) -> dict[str, Field[Any]]:
        """The user's names of the fields, with the fields."""
        return {f.metadata["name"] or f.name: f for f in fields(cls) if f.metadata}

    @classmethod
    def properties(cls) -> Iterator[tuple[str, Prop[Any] | type[Spec]]]:
        """The fields that are copied to a property of an element, with the property."""
        for f in fields(cls):
            if f.metadata.get("xml") is not None:
                yield f.name, f.metadata["xml"]

    @classmethod
    def parse(cls: type[P], value: Any, argument: str) -> P:
        """Parse a dictionary; ``argument`` names it in errors, for example ``cpu:topology``.

        Raises InvalidInput for an unknown key or a wrong value.
        """
        field_values: dict[str, Any] = {}
        known_keys = cls.keys()
        for word, item in mapping(value, argument).items():
            if str(word).startswith("__"):
                continue
            if word not in known_keys:
                raise unknown(word, known_keys, argument)
            entry = known_keys[word]
            if item is None:
                removes = cls.NONE_REMOVES and entry.name not in cls.NONE_LEAVES
                field_values[entry.name] = REMOVE if removes else None
            else:
                field_values[entry.name] = entry.metadata["parse"](item, f"{argument}:{word}")
        part = cls(**field_values)
        for word, entry in known_keys.items():
            item = getattr(part, entry.name)
            if entry.metadata["required"] and not item and item != 0:
                raise InvalidInput(f"{argument}: {word} is missing")
        part.check(argument)
        return part

    def removed_fields(self) -> set[str]:
        """The fields whose setting is to be removed."""
        return {f.name for f in fields(self) if getattr(self, f.name) is REMOVE}

    def check(self, argument: str) -> None:
        """Check conditions between several values. Raises InvalidInput."""


def nested(cls: type[P]) -> Parser[P]:
    """A parser for a key whose value is itself a dictionary."""
    return cls.parse
