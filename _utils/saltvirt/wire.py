"""Facts that travel from host to host, or through a file: dataclasses that come from plain data and
go back to it.

The fields of a Fact are the keys of the plain data, with the unit in the name. The other side may
be of another version: keys that this one does not know are passed over, and a field with a default
may be missing. What is there has the type that its field says, or the whole answer is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast

from saltvirt import errors

# what is counted or measured is a number from 0 that is smaller
MOST = 2**63
# what is only compared, such as an inode: a file system may use each of its 64 bits
Mark = Annotated[int, 2**64]
# the types that a field can have, as a person calls them
_WORDS = {str: "text", bool: "true or false", int: "a number from 0", float: "a number from 0"}

_SCALARS = frozenset({str, int, float, bool, type(None)})
_SELDOM, _UNTOLD = "seldom", "untold"

Reader = Callable[[Any], Any]
AnyFact = TypeVar("AnyFact", bound="Fact")
Value = TypeVar("Value")


class Fact:
    """The base of dataclasses that travel.

    A field is a str, bool, int or float (a number from 0), a Mark, another Fact, a list, tuple or
    frozenset of one of them, a dict of text to one of them, one of several of those or None, or
    Any.

    NAMED_BY: of Facts in a dict by name: the field that this name is.
    """

    NAMED_BY: ClassVar[str | None] = None

    @classmethod
    def from_answer(cls: type[AnyFact], data: object, whose: str) -> AnyFact:
        """The Fact in plain data. whose: the host that told it, or the file that it is in.

        Raises BadAnswer, which says whose it is, which key is wrong, and what it should be.
        """
        try:
            found: AnyFact = _reader(cast(Any, cls))(data)
        except Misfit as exc:
            raise errors.BadAnswer(f"{whose}: {exc}") from exc
        return found

    def to_answer(self) -> dict[str, Any]:
        """As plain data, such as JSON has."""
        told = ((field, getattr(self, field.name)) for field in _keys(cast(Any, type(self))))
        return {
            field.name: _plain(value)
            for field, value in told
            if field.name != self.NAMED_BY and not _is_seldom(field, value)
        }


class Again(Generic[AnyFact]):
    """Reads Facts of one kind that come again and again. A value that is the very object that was
    there the time before is not read anew: the Fact has what was made of it then."""

    def __init__(self, kind: type[AnyFact]) -> None:
        self._kind = kind
        self._readers = {name: read for name, read, _ in _fields(cast(Any, kind))}
        self._before: tuple[dict[str, Any], AnyFact] | None = None

    def read(self, data: dict[str, Any], whose: str) -> AnyFact:
        """As Fact.from_answer, of plain data that nobody changes any more."""
        if self._before is None or self._before[0].keys() != data.keys():
            found = self._kind.from_answer(data, whose)
        else:
            old, fact = self._before
            try:
                news = {
                    name: _at(name, self._readers[name], value)
                    for name, value in data.items()
                    if value is not old[name] and name in self._readers
                }
            except Misfit as exc:
                raise errors.BadAnswer(f"{whose}: {exc}") from exc
            found = object.__new__(self._kind)  # there are hundreds a second: no field is set twice
            found.__dict__.update(fact.__dict__)
            found.__dict__.update(news)
        self._before = data, found
        return found


def seldom(default: Value) -> Value:
    """A field that most Facts lack: where it is as by default it is no key."""
    return _field(default, _SELDOM)


def untold(default: Value) -> Value:
    """A field that does not travel."""
    return _field(default, _UNTOLD)


def _field(default: Value, mark: str) -> Value:
    made = {"default_factory": dict} if default == {} else {"default": default}
    found: Value = dataclasses.field(**made, metadata={mark: True})
    return found


def _is_seldom(field: dataclasses.Field[Any], value: object) -> bool:
    empty = {} if field.default is dataclasses.MISSING else field.default
    return _SELDOM in field.metadata and value == empty


@functools.cache
def _keys(kind: Any) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(kind)
    return [field for field in fields if _UNTOLD not in field.metadata]


class Misfit(Exception):
    """A place in plain data where something else should be."""

    def __init__(self, wanted: str):
        super().__init__(wanted)
        self.wanted = wanted
        self.keys: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.keys)) or 'it'} is not {self.wanted}"


def misfit(data: object, fact: type[Fact]) -> str | None:
    """What keeps plain data from being that Fact, None when it is one."""
    try:
        _reader(cast(Any, fact))(data)
    except Misfit as exc:
        return str(exc)
    return None


def _plain(value: object) -> object:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Fact):
        return value.to_answer()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def _reader(kind: Any) -> Reader:
    """What makes a value of that type from plain data, or raises Misfit."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _either(
            [_reader(one) for one in inner if one is not type(None)], type(None) in inner
        )
    if origin is dict:
        return _mapping(inner[1])
    if origin in (list, tuple, frozenset):
        return _several(origin, _reader(inner[0]))
    if origin is Annotated:
        return _mark(below=inner[1])
    plain: Any = object if kind is Any else kind
    if issubclass(plain, Fact):
        return _fact(plain)
    return _number(plain) if plain in (int, float) else _one(plain)


def _either(readers: list[Reader], optional: bool) -> Reader:
    """What the first of the readers makes of it that can; optional: None stays None."""
    *some, last = readers

    def read(data: Any) -> Any:
        if optional and data is None:
            return None
        for one in some:
            with contextlib.suppress(Misfit):
                return one(data)
        return last(data)

    return read


def _one(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, kind):
            raise Misfit(_WORDS[kind])
        return data

    return read


def _number(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, (int, float)) or not 0 <= data < MOST:
            raise Misfit(_WORDS[kind])
        return kind(data)

    return read


def _mark(below: int) -> Reader:
    def read(data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data < below:
            raise Misfit(_WORDS[int])
        return data

    return read


def _several(kind: Callable[[Any], Any], read_one: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            raise Misfit("a list")
        return kind([_at(str(place), read_one, one) for place, one in enumerate(data)])

    return read


def _mapping(of: Any) -> Reader:
    read_one = _reader(of)
    name = of.NAMED_BY if isinstance(of, type) and issubclass(of, Fact) else None

    def read(data: Any) -> Any:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise Misfit("a mapping")
        if name:
            data = {key: {**one, name: key} if isinstance(one, dict) else one
                    for key, one in data.items()}  # fmt: skip
        return {key: _at(key, read_one, one) for key, one in data.items()}

    return read


@functools.cache
def _fields(kind: type[Fact]) -> list[tuple[str, Reader, bool]]:
    """(name, what reads it, whether it must be there) of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        (
            field.name,
            _reader(hints[field.name]),
            field.default is field.default_factory is dataclasses.MISSING,
        )
        for field in _keys(cast(Any, kind))
    ]


def _fact(kind: type[Fact]) -> Reader:
    fields = _fields(cast(Any, kind))

    def read(data: Any) -> Fact:
        if not isinstance(data, dict):
            raise Misfit("a mapping")
        found = {}
        for name, read_one, needed in fields:
            if name in data:
                found[name] = _at(name, read_one, data[name])
            elif needed:
                raise Misfit(f"whole: {name} is missing")
        return kind(**found)

    return read


def _at(key: str, read: Reader, data: Any) -> Any:
    try:
        return read(data)
    except Misfit as exc:
        exc.keys.append(key)
        raise
