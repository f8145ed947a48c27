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
NUMBER_LIMIT = 2**63
# what is only compared, such as an inode: a file system may use each of its 64 bits
Mark = Annotated[int, 2**64]
# the types that a field can have, as a person calls them
_TYPE_NAMES = {
    str: "text", bool: "true or false", int: "a number from 0", float: "a number from 0",
    type(None): "nothing",
}  # fmt: skip

_SCALARS = frozenset({str, int, float, bool, type(None)})
_OPTIONAL, _TRANSIENT = "seldom", "untold"

Reader = Callable[[Any], Any]
AnyMessage = TypeVar("AnyMessage", bound="Message")
Value = TypeVar("Value")


class Message:
    """The base of dataclasses that travel.

    A field is a str, bool, int or float (a number from 0), a Mark, another Fact, a list, tuple or
    frozenset of one of them, a dict of text to one of them, one of several of those or None, or
    Any.

    NAMED_BY: of Facts in a dict by name: the field that this name is.
    """

    NAMED_BY: ClassVar[str | None] = None

    @classmethod
    def from_answer(cls: type[AnyMessage], data: object, source: str) -> AnyMessage:
        """The Fact in plain data. source: the host that told it, or the file that it is in.

        Raises BadAnswer, which says whose it is, which key is wrong, and what it should be.
        """
        try:
            message: AnyMessage = _reader(cast(Any, cls))(data)
        except ValidationError as exc:
            raise errors.BadAnswer(f"{source}: {exc}") from exc
        return message

    def to_answer(self) -> dict[str, Any]:
        """As plain data, such as JSON has."""
        pairs = ((field, getattr(self, field.name)) for field in _keys(cast(Any, type(self))))
        return {
            field.name: _plain(value)
            for field, value in pairs
            if field.name != self.NAMED_BY and not _is_omitted(field, value)
        }


class CachedReader(Generic[AnyMessage]):
    """Reads Facts of one kind that come again and again. A value that is the very object that was
    there the time before is not read anew: the Fact has what was made of it then."""

    def __init__(self, kind: type[AnyMessage]) -> None:
        self._kind = kind
        self._readers = {name: read for name, read, _ in _fields(cast(Any, kind))}
        self._before: tuple[dict[str, Any], AnyMessage] | None = None

    def read(self, data: dict[str, Any], source: str) -> AnyMessage:
        """As Fact.from_answer, of plain data that nobody changes any more."""
        if self._before is None or self._before[0].keys() != data.keys():
            message = self._kind.from_answer(data, source)
        else:
            old, previous = self._before
            try:
                changed = {
                    name: _read_at(name, self._readers[name], value)
                    for name, value in data.items()
                    if value is not old[name] and name in self._readers
                }
            except ValidationError as exc:
                raise errors.BadAnswer(f"{source}: {exc}") from exc
            message = object.__new__(
                self._kind
            )  # there are hundreds a second: no field is set twice
            message.__dict__.update(previous.__dict__)
            message.__dict__.update(changed)
        self._before = data, message
        return message


def optional(default: Value) -> Value:
    """A field that most Facts lack: where it is as by default it is no key."""
    return _field(default, _OPTIONAL)


def transient(default: Value) -> Value:
    """A field that does not travel."""
    return _field(default, _TRANSIENT)


def _field(default: Value, mark: str) -> Value:
    default_kwargs = {"default_factory": dict} if default == {} else {"default": default}
    declaration: Value = dataclasses.field(**default_kwargs, metadata={mark: True})
    return declaration


def _is_omitted(field: dataclasses.Field[Any], value: object) -> bool:
    empty = {} if field.default is dataclasses.MISSING else field.default
    return _OPTIONAL in field.metadata and value == empty


@functools.cache
def _keys(kind: Any) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(kind)
    return [field for field in fields if _TRANSIENT not in field.metadata]


class ValidationError(Exception):
    """A place in plain data where something else should be."""

    def __init__(self, expected: str):
        super().__init__(expected)
        self.expected = expected
        self.keys: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.keys)) or 'it'} is not {self.expected}"


def mismatch(data: object, message_type: type[Message]) -> str | None:
    """What keeps plain data from being that Fact, None when it is one."""
    try:
        _reader(cast(Any, message_type))(data)
    except ValidationError as exc:
        return str(exc)
    return None


def read(kind: type[Value], data: object, source: str) -> Value:
    """Return the value of a type that a field can have, from plain data. source: the host that sent
    it, or the file that contains it. Raises BadAnswer."""
    try:
        return cast(Value, _reader(cast(Any, kind))(data))
    except ValidationError as exc:
        raise errors.BadAnswer(f"{source}: {exc}") from exc


def field_names(kind: type[Message]) -> set[str]:
    """Return the keys that the plain data of a message can have."""
    return {field.name for field in _keys(cast(Any, kind))}


def plain(value: object) -> object:
    """Return a message, or a collection of messages, as plain data."""
    return _plain(value)


def _plain(value: object) -> object:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Message):
        return value.to_answer()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def _reader(kind: Any) -> Reader:
    """What makes a value of that type from plain data, or raises Misfit."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(
            [_reader(member) for member in inner if member is not type(None)], type(None) in inner
        )
    if origin is dict:
        return _mapping(inner[1])
    if origin in (list, tuple, frozenset):
        return _sequence(origin, _reader(inner[0]))
    if origin is Annotated:
        return _mark(below=inner[1])
    plain: Any = object if kind is Any else kind
    if issubclass(plain, Message):
        return _message(plain)
    return _number(plain) if plain in (int, float) else _instance(plain)


def _union(readers: list[Reader], allows_none: bool) -> Reader:
    """What the first of the readers makes of it that can; optional: None stays None."""
    *some, last = readers

    def read(data: Any) -> Any:
        if allows_none and data is None:
            return None
        for reader in some:
            with contextlib.suppress(ValidationError):
                return reader(data)
        return last(data)

    return read


def _instance(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, kind):
            raise ValidationError(_TYPE_NAMES[kind])
        return data

    return read


def _number(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if (
            isinstance(data, bool)
            or not isinstance(data, (int, float))
            or not 0 <= data < NUMBER_LIMIT
        ):
            raise ValidationError(_TYPE_NAMES[kind])
        return kind(data)

    return read


def _mark(below: int) -> Reader:
    def read(data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data < below:
            raise ValidationError(_TYPE_NAMES[int])
        return data

    return read


def _sequence(kind: Callable[[Any], Any], read_one: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            raise ValidationError("a list")
        return kind([_read_at(str(index), read_one, item) for index, item in enumerate(data)])

    return read


def _mapping(value_type: Any) -> Reader:
    read_one = _reader(value_type)
    name = (
        value_type.NAMED_BY
        if isinstance(value_type, type) and issubclass(value_type, Message)
        else None
    )

    def read(data: Any) -> Any:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise ValidationError("a mapping")
        if name:
            data = {key: {**item, name: key} if isinstance(item, dict) else item
                    for key, item in data.items()}  # fmt: skip
        return {key: _read_at(key, read_one, item) for key, item in data.items()}

    return read


@functools.cache
def _fields(kind: type[Message]) -> list[tuple[str, Reader, bool]]:
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


def _message(kind: type[Message]) -> Reader:
    fields = _fields(cast(Any, kind))

    def read(data: Any) -> Message:
        if not isinstance(data, dict):
            raise ValidationError("a mapping")
        field_values = {}
        for name, read_one, needed in fields:
            if name in data:
                field_values[name] = _read_at(name, read_one, data[name])
            elif needed:
                raise ValidationError(f"whole: {name} is missing")
        return kind(**field_values)

    return read


def _read_at(key: str, read: Reader, data: Any) -> Any:
    try:
        return read(data)
    except ValidationError as exc:
        exc.keys.append(key)
        raise
