"""The decorators of runner functions: they check arguments and the rights of the caller, and report
an error in one line with an exit code."""

from __future__ import annotations

import functools
import inspect
import logging
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from saltvirt import errors, sanitize, settings, units
from saltvirt.fleet import requester
from saltvirt.operations.access import access_check, activity, bulk
from saltvirt.operations.core.result import Answer, failed, with_outputter
from saltvirt.spec import base, values
from saltvirt.system import full_disk

# arguments that are names: of a guest, a host, a snapshot, a finding or a domain type
_NAMES = {"name", "new", "host", "target", "lost", "snapshot", "finding", "hypervisor"}
# flags among further arguments, which no signature names
_FLAGS = {"test", "overcommit", "wait", "autostart"}
# arguments that are True, False or a keyword, such as seed=cloud-init
_SWITCHES = {"seed"}

log = logging.getLogger(__name__)


def _bind_arguments(
    function: Callable[..., Answer],
    args: Sequence[Any],
    kwargs: Answer,
    several: str | None,
    selectors: Sequence[str] = (),
) -> inspect.BoundArguments:
    """Return the bound arguments, with names as text and flags as booleans. Raises InvalidInput if
    an argument is missing, unknown, or not a valid name. several: the argument that may also be a
    list of names. selectors: further arguments that exist, for the error."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    takes_any = any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
    name = f"virt.{function.__name__}"
    for word in () if takes_any else sorted(kwargs.keys() - parameters.keys()):
        raise base.unknown(word, {*parameters, *selectors}, name)
    ordered = [word for word, entry in parameters.items() if entry.kind is not entry.VAR_KEYWORD]
    for word in ordered[: len(args)]:
        if word in kwargs:
            raise errors.InvalidInput(
                f"{name}: {word} is given twice; the arguments in order are {', '.join(ordered)}"
            )
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise errors.InvalidInput(f"{name}: {exc}; help: salt-run -d {name}") from exc
    arguments = bound.arguments
    for word in sorted(arguments.keys() & _NAMES):
        value = arguments[word]
        needed = signature.parameters[word].default is inspect.Parameter.empty
        # YAML reads a name of digits as a number
        is_valid = isinstance(value, (str, int, type(None))) and not isinstance(value, bool)
        is_valid |= word == several and isinstance(value, list)
        if not is_valid or (needed and value in (None, "")):
            hint = ""
            if isinstance(value, (bool, float)):
                hint = f": if YAML has read a name so, quote it twice, as in {word}='\"1.0\"'"
            raise errors.InvalidInput(f"{word} must be a name, not {units.short_repr(value)}{hint}")
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


def reporting_guests(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Like ``reporting``, for a function about one guest: it is called for each guest if the caller
    selects several, see access.bulk."""
    return _reporting_bulk(function, destructive=False)


def reporting_destructive(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Like ``reporting_guests``, for a function after which data are lost: guests that are selected
    by a pattern must be confirmed by their number."""
    return _reporting_bulk(function, destructive=True)


def _reporting_bulk(function: Callable[..., Answer], destructive: bool) -> Callable[..., Answer]:
    selectors = bulk.selectors(function)

    def call(args: tuple[Any, ...], kwargs: Answer, injected: object) -> Answer:
        chosen = bulk.selection(function, args, kwargs)
        if chosen is None:
            return _call_checked(function, args, kwargs, injected, None, selectors)
        user = access_check.limited_user(function, injected)
        # a mistyped argument is refused before a host is asked
        _bind_arguments(function, ("name", *chosen.args), chosen.kwargs, None, selectors)

        def call_single(single_args: tuple[Any, ...], single_kwargs: Answer) -> Answer:
            return _guarded(
                function, single_args[0],
                lambda: _call_checked(function, single_args, single_kwargs, injected, None),
            )  # fmt: skip

        with requester.identified(user):
            return bulk.answer(function, chosen, call_single, user, destructive)

    wrapper = _wrapper(function, call)
    wrapper.__doc__ = _with_selection(function.__doc__ or "", selectors, destructive)
    return wrapper


def _with_selection(manual: str, selectors: Sequence[str], destructive: bool) -> str:
    """Return the manual of a verb with how it is called for several guests."""
    selecting = [f"``{word}=``" for word in selectors if word in bulk.SELECTORS]
    text = (
        "For several guests, ``name`` is a list (``web1,web2``) or a shell pattern (``'web*'``); "
        f"{', '.join(selecting[:-1])} and {selecting[-1]} select guests instead of a name or among "
        "those of a pattern. "
        f"``at_once={bulk.AT_ONCE}`` guests are processed at a time."
    )
    if destructive:
        text += " A pattern or a selection needs ``confirm=N``: the number of guests."
    described, mark, fields = inspect.cleandoc(manual).partition("\n\n:")
    manual = f"{described}\n\n{textwrap.fill(text, 96)}{mark}{fields}"
    return "\n" + textwrap.indent(manual, " " * 4) + "\n    "


def _reporting(function: Callable[..., Answer], several: str | None) -> Callable[..., Answer]:
    def call(args: tuple[Any, ...], kwargs: Answer, injected: object) -> Answer:
        return _call_checked(function, args, kwargs, injected, several)

    return _wrapper(function, call)


def _call_checked(
    function: Callable[..., Answer],
    args: Sequence[Any],
    kwargs: Answer,
    injected: object,
    several: str | None,
    selectors: Sequence[str] = (),
) -> Answer:
    bound = _bind_arguments(function, args, kwargs, several, selectors)
    return activity.recorded(
        function, bound, injected, lambda: access_check.answer(function, bound, injected)
    )


def _wrapper(
    function: Callable[..., Answer],
    call: Callable[[tuple[Any, ...], Answer, object], Answer],
) -> Callable[..., Answer]:
    """Return the function that Salt calls. Its signature accepts all keywords: Salt would answer
    an unknown one with the whole manual and exit code 0."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Answer:
        subject = args[0] if args else kwargs.get("name") or kwargs.get("host") or "virt"
        # Salt injects the user into the globals of the function that it calls, which is this
        # wrapper
        injected = globals().get("__user__")
        return with_outputter(
            _guarded(function, subject, lambda: call(args, settings.user_kwargs(kwargs), injected))
        )

    # Salt would check the arguments by __wrapped__
    wrapper.function = wrapper.__dict__.pop("__wrapped__")  # type: ignore[attr-defined]
    wrapper.__signature__ = _open_signature(function)  # type: ignore[attr-defined]
    return wrapper


def _open_signature(function: Callable[..., Answer]) -> inspect.Signature:
    """Return the function's signature with further keywords."""
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return signature
    extra = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*parameters, extra])


def _guarded(function: Callable[..., Answer], given: object, call: Callable[[], Answer]) -> Answer:
    """Return what the call returns, or the answer for its error. given: the subject as the caller
    named it."""
    subject = sanitize.one_line(given if isinstance(given, str) else units.short_repr(given))
    try:
        return call()
    except errors.VirtError as exc:
        log.info("virt.%s: %s", function.__name__, exc.text)
        return failed(subject, exc.text)
    except Exception as exc:
        log.exception("virt.%s", function.__name__)
        comment = f"internal error: {exc!r}; please report it with the traceback above"
        description = full_disk.describe(exc)
        return failed(subject, f"this master {description}" if description else comment)
