"""The decorators of runner functions: they check arguments and the rights of the caller, and report
an error in one line with an exit code."""

from __future__ import annotations

import errno
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from saltvirt import errors, sanitize, units
from saltvirt.operations.access import access_check
from saltvirt.operations.core.result import Answer, failed, with_outputter
from saltvirt.spec import values

# arguments that are names: of a guest, a host, a snapshot, a finding or a domain type
_NAMES = {"name", "new", "host", "target", "lost", "snapshot", "finding", "hypervisor"}
# flags among further arguments, which no signature names
_FLAGS = {"test", "overcommit", "wait", "autostart"}
# arguments that are True, False or a keyword, such as seed=cloud-init
_SWITCHES = {"seed"}

# the master's file system is full or read-only
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

log = logging.getLogger(__name__)


def _bind_arguments(
    function: Callable[..., Answer], args: Sequence[Any], kwargs: Answer, several: str | None
) -> inspect.BoundArguments:
    """Return the bound arguments, with names as text and flags as booleans. Raises InvalidInput if
    an argument is missing, unknown, or not a valid name. several: the argument that may also be a
    list of names."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as exc:
        name = function.__name__
        raise errors.InvalidInput(f"virt.{name}: {exc}; help: salt-run -d virt.{name}") from exc
    arguments = bound.arguments
    for word in sorted(arguments.keys() & _NAMES):
        value = arguments[word]
        needed = signature.parameters[word].default is inspect.Parameter.empty
        # YAML reads a name of digits as a number
        is_valid = isinstance(value, (str, int, type(None))) and not isinstance(value, bool)
        is_valid |= word == several and isinstance(value, list)
        if not is_valid or (needed and value in (None, "")):
            raise errors.InvalidInput(f"{word} must be a name, not {units.short_repr(value)}")
        arguments[word] = str(value) if isinstance(value, int) else value
    _read_flags(bound)
    return bound


def _read_flags(bound: inspect.BoundArguments) -> None:
    """Parse flags that are texts, as from salt-api or a quoted value in an SLS file: the text
    ``False`` would be true. Raises InvalidInput for any other value."""
    arguments = bound.arguments
    for word, parameter in bound.signature.parameters.items():
        is_flag = isinstance(parameter.default, bool) and word not in _SWITCHES
        if is_flag and arguments.get(word) is not None:
            arguments[word] = values.boolean(arguments[word], word)
        elif parameter.kind is parameter.VAR_KEYWORD and word in arguments:
            flags = {
                flag: values.boolean(value, flag)
                for flag, value in arguments[word].items()
                if flag in _FLAGS and value is not None
            }
            arguments[word] = {**arguments[word], **flags}


def reporting(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Wrap a runner function: errors become one line and exit code 1, and the caller's rights are
    checked, see access.access_check.

    The first argument, or ``name`` or ``host``, is the subject of the answer.
    """
    return _reporting(function, None)


def reporting_several(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Like ``reporting``, for a function whose ``name`` may also be a list of names."""
    return _reporting(function, "name")


def _reporting(function: Callable[..., Answer], several: str | None) -> Callable[..., Answer]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Answer:
        subject = args[0] if args else kwargs.get("name") or kwargs.get("host") or "virt"
        subject = sanitize.one_line(
            units.short_repr(subject) if not isinstance(subject, str) else subject
        )
        try:
            bound = _bind_arguments(function, args, kwargs, several)
            # Salt injects the user into the globals of the function that it calls, which is this
            # wrapper
            return with_outputter(access_check.answer(function, bound, globals().get("__user__")))
        except errors.VirtError as exc:
            log.info("virt.%s: %s", function.__name__, exc.text)
            return with_outputter(failed(subject, exc.text))
        except Exception as exc:
            log.exception("virt.%s", function.__name__)
            comment = f"internal error: {exc!r}; please report it with the traceback above"
            if isinstance(exc, OSError) and exc.errno in _FULL:
                comment = f"this master cannot write {exc.filename or 'its files'}: {exc.strerror}"
            return with_outputter(failed(subject, comment))

    return wrapper
