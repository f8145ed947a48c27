"""Common handling of the arguments and results of states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from saltvirt import sanitize
from saltvirt.errors import SaltException, Unsupported
from saltvirt.settings import CONNECTION
from saltvirt.spec.base import unknown

# the return value of a state
Answer = dict[str, Any]
Functions = Mapping[str, Callable[..., Any]]
# Salt's own arguments of states: in an SLS, and of state.single
_SALT_ARGUMENTS = ("aggregate", "concurrent", "pillar", "pillar_enc")


def answer(
    name: str,
    changes: dict[str, Any] | None = None,
    comment: str = "",
    test: bool = False,
    failures: Iterable[object] = (),
) -> Answer:
    """The dictionary of a state: the result is False with failures, None for changes with ``test``.

    failures: error messages; changes that were made nevertheless are kept.
    """
    result = None if changes and test else True
    sentences = [str(failure) for failure in failures]
    if sentences:
        result, comment = False, ". ".join([*filter(None, [comment]), *sentences])
    comment = sanitize.one_line(comment, None)
    return {"name": name, "changes": changes or {}, "result": result, "comment": comment}


def state_arguments(
    kwargs: Mapping[str, Any], allowed: Collection[str], choices: Collection[str], state: str
) -> dict[str, Any]:
    """The arguments without Salt's own (``__id__`` and the like).

    Raises InvalidInput for an unknown argument, with the closest of ``choices``. state: name of the
    state.
    """
    accepted = {word: value for word, value in kwargs.items() if word in allowed}
    for word in kwargs:
        if word not in (*accepted, *_SALT_ARGUMENTS) and not str(word).startswith("__"):
            raise unknown(word, choices, state)
    return accepted


class StateHost:
    """The host of a state: the execution module, and whether this is a test.

    salt: ``__salt__``. connect: the state's arguments for libvirt's connection.
    """

    def __init__(self, salt: Functions, connect: Mapping[str, Any], test: bool) -> None:
        self.salt = salt
        self.connect = connect
        self.test = test

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Call ``virt.<function>`` with the state's connection. Raises Unsupported."""
        name = f"virt.{function}"
        if name not in self.salt:
            raise Unsupported(
                f"this minion has no {name}: run saltutil.sync_all on it and try again"
            )
        return self.salt[name](*args, **{**self.connect, **kwargs})

    def ha_reason(self, name: str) -> str:
        """The reason why high availability manages, and starts, the guest; otherwise empty."""
        ha_kept = self.salt.get("virt.ha_kept")
        return str(ha_kept(name)) if ha_kept else ""

    def converged(self, name: str, function: str, *args: Any, **kwargs: Any) -> Answer:
        """Call a function of the execution module that returns ``changes`` and ``comment``, and
        return the state's answer."""
        response = self.call(function, *args, test=self.test, **kwargs)
        return answer(name, response["changes"], response["comment"], self.test)


def run(
    state: str,
    state_kwargs: Mapping[str, Any],
    salt: Functions,
    test: object,
    function: Callable[..., Answer],
    extra_arguments: Collection[str] = (),
) -> Answer:
    """Call ``function(host, name, **arguments)``; an exception of Salt becomes the result.

    state: its name, for errors. state_kwargs: ``locals()`` of the state: its arguments, further
    ones in ``kwargs``. salt: ``__salt__``. extra_arguments: the names that may be in ``kwargs``;
    others are refused with the closest name that the state has.
    """
    arguments = dict(state_kwargs)
    name, kwargs = str(arguments.pop("name")), arguments.pop("kwargs", {})
    choices = {"name", *arguments, *extra_arguments}
    connect = {word: arguments.pop(word) for word in CONNECTION if word in arguments}
    connect = {word: value for word, value in connect.items() if value is not None}
    try:
        arguments.update(state_arguments(kwargs, extra_arguments, choices, state))
        return function(StateHost(salt, connect, bool(test)), name, **arguments)
    except SaltException as exc:
        return answer(name, failures=[exc])
