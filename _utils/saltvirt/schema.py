"""Messages between hosts, or in files: dataclasses that are parsed from plain data and converted
back.

The fields of a Message are the keys of the plain data, with units in their names. The other side
may have another version: unknown keys are ignored, and fields with a default may be missing unless
they are declared as required. All other values must have the type of their field, or the whole
message is rejected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast

from saltvirt import errors

# upper limit of counters and measurements
NUMBER_LIMIT = 2**63
# a value that is only compared, such as an inode, which may use all of its 64 bits
Mark = Annotated[int, 2**64]
# types of fields, as named in messages
_TYPE_NAMES = {
    str: "text", bool: "true or false", int: "a number from 0", float: "a number from 0",
    type(None): "nothing",
}  # fmt: skip

_SCALARS = frozenset({str, int, float, bool, type(None)})
_OPTIONAL, _TRANSIENT, _REQUIRED = "optional", "transient", "required"

Reader = Callable[[Any], Any]
AnyMessage = TypeVar("AnyMessage", bound="Message")
Value = TypeVar("Value")


class Message:
    """Base of dataclasses that are sent or stored.

    A field is a str, bool, int or float (a number from 0), a Mark, another Message, a list, tuple
    or frozenset of one of them, a dict of text to one of them, a union of them with or without
    None, or Any.

    NAMED_BY: the field with the key, for Messages that are the values of a dictionary. UNDECLARED:
    the field, a dictionary, with all keys that are not fields; by default they are ignored.
    ALIASES: former key to its field, for files that an earlier version wrote.
    """

    NAMED_BY: ClassVar[str | None] = None
    UNDECLARED: ClassVar[str | None] = None
    ALIASES: ClassVar[dict[str, str]] = {}

    @classmethod
    def from_answer(cls: type[AnyMessage], data: object, source: str) -> AnyMessage:
        """Parse plain data. source: the host or the file that it comes from, for errors.

        Raises BadAnswer with the source, the invalid key, and the expected value.
        """
        try:
            message: AnyMessage = _reader(cast(Any, cls))(data)
        except ValidationError as exc:
            raise errors.BadAnswer(f"{source}: {exc}") from exc
        return message

    def to_answer(self) -> dict[str, Any]:
        """Convert the Message to plain data, as in JSON."""
        pairs = ((field, getattr(self, field.name)) for field in _keys(cast(Any, type(self))))
        plain = {
            field.name: _plain(value)
            for field, value in pairs
            if field.name not in (self.NAMED_BY, self.UNDECLARED) and not _is_omitted(field, value)
        }
        return {**getattr(self, self.UNDECLARED), **plain} if self.UNDECLARED else plain


class CachedReader(Generic[AnyMessage]):
    """Reader of Messages of the same type that arrive frequently. A value that is the identical
    object as in the previous data is not parsed again."""

    def __init__(self, kind: type[AnyMessage]) -> None:
        self._kind = kind
        self._readers = {name: read for name, read, _ in _fields(cast(Any, kind))}
        self._before: tuple[dict[str, Any], AnyMessage] | None = None

    def read(self, data: dict[str, Any], source: str) -> AnyMessage:
        """Parse a Message like Message.from_answer, from plain data that is not modified
        afterwards."""
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
            # for performance, at hundreds of messages per second, no field is set twice
            message = object.__new__(self._kind)
            message.__dict__.update(previous.__dict__)
            message.__dict__.update(changed)
        self._before = data, message
        return message


def optional(default: Value) -> Value:
    """Declare an optional field, which is omitted from the plain data if it has its default."""
    return _field(default, _OPTIONAL)


def required(default: Value) -> Value:
    """Declare a field with a default that plain data must contain: the default would be unsafe
    where another version names the field otherwise."""
    return _field(default, _REQUIRED)


def transient(default: Value) -> Value:
    """Declare a transient field, which is neither sent nor stored."""
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


# maximum length of a key in a message
_KEY_LENGTH = 200


class ValidationError(Exception):
    """An invalid value in plain data."""

    def __init__(self, expected: str):
        super().__init__(expected)
        self.expected = expected
        self.keys: list[str] = []

    def __str__(self) -> str:
        path = ".".join(key[:_KEY_LENGTH] for key in reversed(self.keys))
        return f"{path or 'it'} is not {self.expected}"


def mismatch(data: object, message_type: type[Message]) -> str | None:
    """The reason why plain data is not a valid Message of that type, or None."""
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


def unknown_keys(kind: type[Message], data: Iterable[str]) -> list[str]:
    """Return the keys of plain data that a message ignores, sorted."""
    names = {field.name for field in _keys(cast(Any, kind))}
    return [] if kind.UNDECLARED else sorted({*data} - names)


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
    """The reader that parses a value of that type, or raises ValidationError."""
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
    """A reader of a union: the first reader that accepts the value. allows_none: None is
    accepted."""
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
    """(name, reader, whether it is required) of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        (
            field.name,
            _reader(hints[field.name]),
            field.default is field.default_factory is dataclasses.MISSING
            or _REQUIRED in field.metadata,
        )
        for field in _keys(cast(Any, kind))
    ]


def _message(kind: type[Message]) -> Reader:
    fields = _fields(cast(Any, kind))
    names = {name for name, _, _ in fields}

    def read(data: Any) -> Message:
        if not isinstance(data, dict):
            raise ValidationError("a mapping")
        if kind.ALIASES:
            data = {kind.ALIASES.get(key, key): value for key, value in data.items()}
        field_values = {}
        for name, read_one, needed in fields:
            if name in data:
                field_values[name] = _read_at(name, read_one, data[name])
            elif needed:
                raise ValidationError(f"complete: {name} is missing")
        if kind.UNDECLARED:
            field_values[kind.UNDECLARED] = {k: v for k, v in data.items() if k not in names}
        return kind(**field_values)

    return read


def _read_at(key: str, read: Reader, data: Any) -> Any:
    try:
        return read(data)
    except ValidationError as exc:
        exc.keys.append(key)
        raise
