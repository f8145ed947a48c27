"""Typed calls from the master to a host: one declaration of a call, for both sides.

A feature declares its calls in a module ``calls``: the name, the request and the answer. The master
makes a call with :meth:`Call.ask`, :meth:`Call.gather` or :meth:`Call.each`. The host implements it
in a module ``handlers`` of the feature, in a function with the decorator :func:`handles`, which
``virt.answer`` finds by the name of the call.

On the wire a call is ``virt.NAME`` with the fields of its request as keyword arguments. A host
whose version has a public function of that name, and no handler, answers in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, cast

from saltvirt import errors, features, schema

PREFIX = "virt."
# the modules with the functions that answer calls, and their calls: a job imports one of them only;
# a feature that is not installed has none
HANDLER_MODULES: Mapping[str, tuple[str, ...]] = {
    "backup.export.handlers": (
        "backup_again", "backup_begin", "backup_disk", "backup_look", "backup_over",
        "backup_restore", "backup_standing", "backup_wish",
    ),
    "backup.target.handlers": (
        "backup_hide", "backup_let_go", "backup_plan", "backup_pull", "backup_reader",
        "backup_show", "backup_stands",
    ),
    "console.host.handlers": ("display", "reach", "screen"),
    "ha.fencing.handlers": ("ha_fence",),
    "host.handlers": (
        "inventory", "leftovers", "migrate_locations", "names_on_disk", "power", "remove_volume",
        "shared_disks", "storage_users",
    ),
    "host.inspect.handlers": ("addresses", "guest_details", "networks", "usage", "volumes"),
}  # fmt: skip

Request = TypeVar("Request", bound=schema.Message)
Answer = TypeVar("Answer")
Data_co = TypeVar("Data_co", covariant=True)
Parsed = TypeVar("Parsed")


class Timeout(Enum):
    """How long the master waits for an answer; see ``Fleet.ask``."""

    SHORT = "short"  # the master's timeout, three times if the host works at the job
    PATIENT = "patient"  # the same, although the host may be too busy to confirm that it works
    LONG = "long"  # while the job makes progress


class HostAnswer(Protocol[Data_co]):
    """The answer of a host: data or an error, never both. See ``fleet.answer.Answer``."""

    @property
    def host(self) -> str: ...

    @property
    def data(self) -> Data_co | None: ...

    @property
    def error(self) -> str | None: ...

    @property
    def kind(self) -> str | None: ...

    @property
    def ok(self) -> bool: ...

    def get(self) -> Data_co:
        """Return the data. Raises VirtError."""

    def parse(self, function: str, read: Callable[[Any, str], Parsed]) -> HostAnswer[Parsed]:
        """Return the answer with the data as ``read`` returns it, or the BadAnswer of ``read``."""


class CallSender(Protocol):
    """What a call needs of ``fleet.client.Fleet``."""

    @property
    def ask(self) -> Callable[..., Iterable[Any]]:
        """Yield the answer of each host."""

    @property
    def gather(self) -> Callable[..., Mapping[str, Any]]:
        """Return the answer of each host by its name."""

    @property
    def call(self) -> Callable[..., Any]:
        """Return the data of a host. Raises VirtError."""

    @property
    def each(self) -> Callable[..., Iterable[Any]]:
        """Return the answers of a host to several calls in one job."""


@dataclass(frozen=True)
class MinionContext:
    """Salt on the host that answers a call: the minion's options and its execution modules."""

    opts: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]]

    @property
    def config(self) -> Callable[..., Any]:
        """``config.get``, which reads a setting."""
        return self.functions["config.get"]


@dataclass(frozen=True)
class Call(Generic[Request, Answer]):
    """A call that the master makes to a host.

    name: the function is ``virt.NAME``. answer: a Message, a scalar type, or a list of them.
    """

    name: str
    request: type[Request]
    answer: type[Answer]
    timeout: Timeout = Timeout.LONG

    @property
    def function(self) -> str:
        """The function that ``virt.answer`` is asked for."""
        return PREFIX + self.name

    def ask(self, fleet: CallSender, host: str, request: Request, **options: Any) -> Answer:
        """Return the answer of one host. options: of ``Fleet.ask``, such as ``watch``.

        Raises ConnectionFailed for an answer of another type, and as ``Fleet.call`` does.
        """
        options = {**self._options, **options}
        data = fleet.call(host, self.function, _arguments(request), **options)
        try:
            return self.read(data, host)
        except errors.BadAnswer as exc:
            text = mismatch_text(self.function, host, exc)
            raise errors.ConnectionFailed(f"{host}: {text}") from exc

    def reply(
        self, fleet: CallSender, host: str, request: Request, **options: Any
    ) -> HostAnswer[Answer]:
        """Return the answer of one host, or its error and the kind of the error."""
        options = {**self._options, **options}
        answers = fleet.gather([host], self.function, _arguments(request), **options)
        return self._parsed(answers[host])

    def replies(
        self, fleet: CallSender, hosts: Iterable[str], request: Request, **options: Any
    ) -> Iterator[HostAnswer[Answer]]:
        """Yield the answer of each host, or its error, as it arrives."""
        options = {**self._options, **options}
        for item in fleet.ask(hosts, self.function, _arguments(request), **options):
            yield self._parsed(item)

    def gather(
        self, fleet: CallSender, hosts: Iterable[str], request: Request, **options: Any
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """Return the answer of each host, and the error of each host without one."""
        answers: dict[str, Answer] = {}
        failed: dict[str, str] = {}
        for item in self.replies(fleet, hosts, request, **options):
            if item.error is None:
                answers[item.host] = item.get()
            else:
                failed[item.host] = item.error
        return answers, failed

    def each(
        self, fleet: CallSender, host: str, requests: Iterable[Request], **options: Any
    ) -> list[HostAnswer[Answer]]:
        """Return the answer or the error of each request, which one job of the host carries out."""
        calls = [_arguments(request) for request in requests]
        return [self._parsed(item) for item in fleet.each(host, self.function, calls, **options)]

    def read(self, data: object, host: str) -> Answer:
        """Return the answer in plain data. Raises BadAnswer."""
        return schema.read(self.answer, data, host)

    def _parsed(self, received: HostAnswer[Any]) -> HostAnswer[Answer]:
        return received.parse(self.function, self.read)

    @property
    def _options(self) -> dict[str, bool]:
        # Fleet.call waits for long jobs by default, Fleet.ask does not
        options = {"long": self.timeout is Timeout.LONG}
        return {**options, "patient": True} if self.timeout is Timeout.PATIENT else options


def mismatch_text(function: str, host: str, error: errors.BadAnswer) -> str:
    """Return the message about an answer of another type."""
    problem = error.text.removeprefix(f"{host}: ")
    return f"its answer to {function} is not what this version expects: {problem}"


def _arguments(request: schema.Message) -> dict[str, Any]:
    """Return the fields of a request as plain data. Raises InvalidInput."""
    try:
        return request.to_answer()
    except RecursionError as exc:
        raise errors.InvalidInput("an argument is nested too deeply") from exc


Handler = Callable[[MinionContext, Request], Answer]

_Registered = tuple[Call[Any, Any], Handler[Any, Any]]

_handlers: dict[str, _Registered] = {}


def handles(
    call: Call[Request, Answer],
) -> Callable[[Handler[Request, Answer]], Handler[Request, Answer]]:
    """Register the function that answers a call on a host."""

    def register(handler: Handler[Request, Answer]) -> Handler[Request, Answer]:
        _handlers[call.function] = call, handler
        return handler

    return register


def is_handled(function: str) -> bool:
    """Return whether a handler answers the function here."""
    return _registered(function) is not None


def request_type(function: str) -> type[schema.Message] | None:
    """Return what a handler of the function takes here; None if no handler answers it."""
    registered = _registered(function)
    return registered[0].request if registered else None


def answer(host: MinionContext, function: str, arguments: Mapping[str, Any]) -> Any:
    """Return what the handler of a function answers, as plain data.

    Raises InvalidInput for arguments of another type or version, and as the handler does.
    """
    registered = _registered(function)
    if registered is None:
        raise errors.Unsupported(f"{function}: this host has no such function")
    call, handler = registered
    unknown = schema.unknown_keys(call.request, arguments)
    if unknown:
        raise errors.InvalidInput(
            f"{function}: unknown argument {', '.join(unknown)}: the master has another version; "
            "run saltutil.sync_all on this host"
        )
    try:
        request = schema.read(call.request, dict(arguments), function)
    except errors.BadAnswer as exc:
        raise errors.InvalidInput(exc.text) from exc
    return schema.plain(handler(host, cast(Any, request)))


def _registered(function: str) -> _Registered | None:
    """Return the call and its handler, whose module is imported at the first use; None if no
    installed feature answers the function."""
    name = function.removeprefix(PREFIX)
    if function not in _handlers:
        list(features.installed(m for m, called in HANDLER_MODULES.items() if name in called))
    return _handlers.get(function)
