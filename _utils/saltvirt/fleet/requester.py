"""Who asks the runner for something, by what Salt does and not by what is said.

What comes to the master over its network, from salt-api or by ``salt-run --eauth``, is run by Salt
in a process of its own, by ``AsyncClientMixin._proc_function``, which gets the user that was
authenticated. That process is told by this function on its stack, and by its name. All else in
which a runner runs was begun by whoever has the master: ``salt-run``, a reactor, a schedule, a
program. Names alone say nothing: anybody may be called ``root`` or ``Reactor`` by an eauth.
"""

from __future__ import annotations

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
# as Salt calls whoever is nobody that was authenticated
UNAUTHENTICATED = ("root", "Reactor", "UNKNOWN")
# the processes of the master in which it does what others ask for
_REQUEST, _WORKER = "ProcessFunc(", "MWorker"

log = logging.getLogger(__name__)


def requesting_user(opts: Mapping[str, Any], injected: object = None) -> str | None:
    """The user, or None for those who have the master. injected: what Salt gave the runner as
    ``__user__``. Raises Denied when it is somebody, and cannot be known who."""
    if opts.get("__cli") == COMMAND_LINE:
        return None
    process = multiprocessing.current_process().name
    requests = list(_requests())
    if requests:
        return _user(opts, requests[-1])
    if process.startswith((_REQUEST, _WORKER)) or _entry() is None:
        raise errors.Denied("it is not known who asks for this")
    if injected is None or _is_unauthenticated(opts, injected):
        return None
    return _user(opts, injected)


def groups(opts: Mapping[str, Any], eauth: str | None, user: str) -> tuple[str, ...]:
    """The groups that Salt's authentication of this name tells of the user; none when it fails."""
    if eauth is None:
        return ()
    try:
        group_names = salt.loader.auth(dict(opts))[f"{eauth}.groups"](user)
    except Exception as exc:  # of whatever module it is
        log.warning("virt:rights:eauth: %s tells no groups of %r: %s", eauth, user, exc)
        return ()
    return tuple(name for name in group_names or () if isinstance(name, str))


def _entry() -> CodeType | None:
    """The code by which Salt runs what was asked for over the network; None: this Salt has it
    otherwise, and nobody is known."""
    entry = getattr(salt.client.mixins.AsyncClientMixin, "_proc_function", None)
    if entry is None or not {"user", "daemonize"} <= inspect.signature(entry).parameters.keys():
        return None
    return getattr(entry, "__code__", None)


def _requests() -> Iterator[object]:
    """The users of the requests in which this is run, the outermost last."""
    entry, frame = _entry(), sys._getframe()
    while frame.f_back is not None:
        if frame.f_code is entry and frame.f_locals.get("daemonize") is not False:
            yield frame.f_locals.get("user")
        frame = frame.f_back


def _is_unauthenticated(opts: Mapping[str, Any], user: object) -> bool:
    return user in (*UNAUTHENTICATED, opts.get("user")) or str(user).startswith("sudo_")


def _user(opts: Mapping[str, Any], user: object) -> str:
    """The name, when somebody can be meant by it."""
    if not isinstance(user, str) or not user or not user.isprintable():
        raise errors.Denied("it is not known who asks for this")
    if _is_unauthenticated(opts, user) or user.startswith(("%", "*")):
        raise errors.Denied(
            f"a user who is called {units.short_repr(user)} cannot be told from others: it is not "
            f"known "
            "who asks for this"
        )
    return user
