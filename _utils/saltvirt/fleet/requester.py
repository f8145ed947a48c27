"""Identify the user who calls the runner, from Salt's process and not from arguments.

Salt runs a request from the network (salt-api, ``salt-run --eauth``) in a separate process, in
``AsyncClientMixin._proc_function``, with the authenticated user as argument. This function on the
stack, and the name of the process, identify such a request. Everything else that runs a runner was
started by someone who controls the master: ``salt-run``, a reactor, a schedule, a program. Names
alone prove nothing: an eauth may have users called ``root`` or ``Reactor``.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import salt.client.mixins
import salt.loader

from saltvirt import errors, units

COMMAND_LINE = "salt-run"
# the users that Salt names for calls without authentication
UNAUTHENTICATED = ("root", "Reactor", "UNKNOWN")
# names of the master's processes that carry out requests
_REQUEST, _WORKER = "ProcessFunc(", "MWorker"

# the user of a call that continues in further threads, as a tuple of one
_identified: contextvars.ContextVar[tuple[str | None] | None] = contextvars.ContextVar(
    "identified", default=None
)

log = logging.getLogger(__name__)


@contextlib.contextmanager
def identified(user: str | None) -> Iterator[None]:
    """Return this user from requesting_user during the block, also in threads with a copy of the
    context: their stacks do not show who called."""
    token = _identified.set((user,))
    try:
        yield
    finally:
        _identified.reset(token)


def requesting_user(opts: Mapping[str, Any], injected: object = None) -> str | None:
    """Return the user, or None for a caller who controls the master.

    injected: ``__user__`` as Salt passed it to the runner. Raises Denied if the call was
    authenticated and the user cannot be identified.
    """
    identity = _identified.get()
    if identity is not None:
        return identity[0]
    if opts.get("__cli") == COMMAND_LINE:
        return None
    process = multiprocessing.current_process().name
    requests = list(_requests())
    if requests:
        return _user(opts, requests[-1])
    if process.startswith((_REQUEST, _WORKER)) or _entry() is None:
        raise errors.Denied("cannot identify the user of this call")
    if injected is None or _is_unauthenticated(opts, injected):
        return None
    return _user(opts, injected)


def groups(opts: Mapping[str, Any], eauth: str | None, user: str) -> tuple[str, ...]:
    """Return the user's groups in Salt's authentication module; none if the module fails."""
    if eauth is None:
        return ()
    try:
        group_names = salt.loader.auth(dict(opts))[f"{eauth}.groups"](user)
    except Exception as exc:  # depends on the module
        log.warning("virt:rights:eauth: %s has no groups of %r: %s", eauth, user, exc)
        return ()
    return tuple(name for name in group_names or () if isinstance(name, str))


def _entry() -> CodeType | None:
    """Return the code with which Salt runs requests from the network.

    Returns None if this version of Salt differs; then no user can be identified.
    """
    entry = getattr(salt.client.mixins.AsyncClientMixin, "_proc_function", None)
    if entry is None or not {"user", "daemonize"} <= inspect.signature(entry).parameters.keys():
        return None
    return getattr(entry, "__code__", None)


def _requests() -> Iterator[object]:
    """Yield the users of the requests on the stack, the outermost last."""
    entry, frame = _entry(), sys._getframe()
    while frame.f_back is not None:
        if frame.f_code is entry and frame.f_locals.get("daemonize") is not False:
            yield frame.f_locals.get("user")
        frame = frame.f_back


def _is_unauthenticated(opts: Mapping[str, Any], user: object) -> bool:
    return user in (*UNAUTHENTICATED, opts.get("user")) or str(user).startswith("sudo_")


def _user(opts: Mapping[str, Any], user: object) -> str:
    """Return the name if it can identify a user. Raises Denied."""
    if not isinstance(user, str) or not user or not user.isprintable():
        raise errors.Denied("cannot identify the user of this call")
    if _is_unauthenticated(opts, user) or user.startswith(("%", "*")):
        raise errors.Denied(
            f"the user name {units.short_repr(user)} is ambiguous: cannot identify the user of "
            "this call"
        )
    return user
