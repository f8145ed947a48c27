"""What a function of the runner gives back, and what becomes of its errors."""

from __future__ import annotations

import errno
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from saltvirt import errors, plain, units
from saltvirt.operations import allowed
from saltvirt.spec import values

OUTPUTTER = "virt_query"

# the arguments that are the name of a guest, a host, a snapshot, a finding or a domain type
_NAMES = {"name", "vm_", "new", "host", "target", "lost", "snapshot", "what", "hypervisor"}
# the flags among further arguments, which no signature names
_FLAGS = {"test", "overcommit", "wait", "autostart"}
# the arguments that are True, False, or a word of their own, such as seed=cloud-init
_SWITCHES = {"seed"}

# a file system of the master's takes nothing
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

# what a function of the runner gives back
Answer = dict[str, Any]

log = logging.getLogger(__name__)


def shown(data: Answer) -> Answer:
    """Data with the name of the outputter that draws it, as salt-run takes it. What it is about and
    each comment are one line, whatever a host, an event or a caller has said."""
    data = {plain.line(name): one for name, one in data.items()}
    for one in data.values():
        if isinstance(one, dict) and isinstance(one.get("comment"), str):
            one["comment"] = plain.line(one["comment"], None)
    return {"data": data, "outputter": OUTPUTTER}


def done(name: str, comment: str, changes: Answer | None = None, **more: Any) -> Answer:
    """The answer of an operation that succeeded."""
    return {name: {"result": True, "comment": comment, "changes": changes or {}, **more}}


def planned(name: str, comment: str, changes: Answer | None = None, **more: Any) -> Answer:
    """The answer to ``test=True``: what would be done, in the same shape; nothing was."""
    return {name: {"result": None, "comment": comment, "changes": changes or {}, **more}}


def failed(about: str, comment: str) -> Answer:
    """The answer of one that failed; ``retcode`` becomes the exit code of salt-run."""
    return {about: {"result": False, "comment": comment}, "retcode": 1}


def _fits(
    function: Callable[..., Answer], args: Sequence[Any], kwargs: Answer, several: str | None
) -> inspect.BoundArguments:
    """The arguments of a call, names as text, flags as True or False. Raises InvalidInput when it
    lacks one, has one too many, or one that must be a name is none. several: the argument that may
    also be a list of names."""
    takes = inspect.signature(function)
    try:
        bound = takes.bind(*args, **kwargs)
    except TypeError as exc:
        name = function.__name__
        raise errors.InvalidInput(
            f"virt.{name}: {exc}; its manual: salt-run -d virt.{name}"
        ) from exc
    given = bound.arguments
    for word in sorted(given.keys() & _NAMES):
        value, needed = given[word], takes.parameters[word].default is inspect.Parameter.empty
        # YAML reads a name of digits as a number
        fits = isinstance(value, (str, int, type(None))) and not isinstance(value, bool)
        fits |= word == several and isinstance(value, list)
        if not fits or (needed and value in (None, "")):
            raise errors.InvalidInput(f"{word} must be a name, not {units.shown(value)}")
        given[word] = str(value) if isinstance(value, int) else value
    _read_flags(bound)
    return bound


def _read_flags(bound: inspect.BoundArguments) -> None:
    """Replaces the text of a flag, such as salt-api or a quoted value in an SLS gives it: the text
    ``False`` would count as true. Raises InvalidInput for a value that is neither."""
    given = bound.arguments
    for word, parameter in bound.signature.parameters.items():
        is_flag = isinstance(parameter.default, bool) and word not in _SWITCHES
        if is_flag and given.get(word) is not None:
            given[word] = values.boolean(given[word], word)
        elif parameter.kind is parameter.VAR_KEYWORD and word in given:
            flags = {
                one: values.boolean(value, one)
                for one, value in given[word].items()
                if one in _FLAGS and value is not None
            }
            given[word] = {**given[word], **flags}


def reporting(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A runner's function whose errors become one line and the exit code 1, and which is called
    for those alone who may, see operations.allowed.

    The first argument, or ``name`` or ``host``, says what the line is about.
    """
    return _reporting(function, None)


def reporting_several(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same of one whose ``name`` may also be a list of names."""
    return _reporting(function, "name")


def _reporting(function: Callable[..., Answer], several: str | None) -> Callable[..., Answer]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Answer:
        about = args[0] if args else kwargs.get("name") or kwargs.get("host") or "virt"
        about = plain.line(units.shown(about) if not isinstance(about, str) else about)
        try:
            given = _fits(function, args, kwargs, several)
            # Salt puts the user into the namespace of what it calls: this one
            return shown(allowed.answer(function, given, globals().get("__user__")))
        except errors.VirtError as exc:
            log.info("virt.%s: %s", function.__name__, exc.text)
            return shown(failed(about, exc.text))
        except Exception as exc:
            log.exception("virt.%s", function.__name__)
            comment = f"internal error: {exc!r}; please report it with the traceback above"
            if isinstance(exc, OSError) and exc.errno in _FULL:
                comment = f"this master cannot write {exc.filename or 'its files'}: {exc.strerror}"
            return shown(failed(about, comment))

    return wrapper
