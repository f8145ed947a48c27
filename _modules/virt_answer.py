"""
What this host answers to the master's runner, signed with the key of its minion.

:depends: cryptography, which Salt brings
"""

import contextlib
import functools
import importlib
import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.answers import calls
    from saltvirt.fleet import proof
    from saltvirt.fleet.minion import events
    from saltvirt.host.node import job_steps
    from saltvirt.rights import confidential
    from saltvirt.spec import base, values

if TYPE_CHECKING:
    from salt_dunders import __context__, __opts__, __salt__

__virtualname__ = "virt"
log = logging.getLogger(__name__)

# what the runner asks beside functions of this module; find_job: one that began before the update
_EXTRA_FUNCTIONS = ("test.ping", "saltutil.find_job")


def __virtual__():
    return __virtualname__


def answer(fun, kwarg=None, **kwargs):
    """
    Call a function of this host, and sign what it returns or fails with.

    Salt does not check whose return a job gets: any accepted minion could answer for this host.
    ``salt-run virt.…`` asks its hosts by this function and believes signed answers alone.

    :param fun: the function: one of ``virt``, or ``test.ping``
    :param kwarg: dictionary of its arguments

    :return: a dict: ``said`` (``return`` and ``retcode``, as Salt has them) and ``proof``

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.answer virt.vm_state
    """
    outdated = _stale_library_answer(fun, kwargs.get("__pub_jid"))
    if outdated:
        return outdated
    _check_function(fun)
    arguments = base.mapping(kwarg or {}, "kwarg")
    try:
        returned = _call(fun, arguments)
    finally:
        job_steps.clear_steps(job_steps.folder(__salt__["config.get"]))
    if returned["retcode"]:
        __context__["retcode"] = returned["retcode"]
    return proof.sign(__opts__, kwargs.get("__pub_jid"), fun, returned)


def answers(fun, each, **kwargs):
    """
    Call a function of this host several times, one call after the other, and sign what they return
    or fail with. ``salt-run virt.init`` of several guests has a host make them by one job.

    :param fun: the function: one of ``virt``
    :param each: list of dictionaries: the arguments of each call

    :return: as ``virt.answer``; its ``return`` is a list: ``return`` and ``retcode`` of each call

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.answers virt.vm_state each='[{vm_: web1}, {vm_: web2}]'
    """
    outdated = _stale_library_answer(fun, kwargs.get("__pub_jid"))
    if outdated:
        return outdated
    _check_function(fun)
    requests = values.list_of(base.mapping)(each, "each")
    try:
        with _events_together():
            returned = [_call(fun, arguments) for arguments in requests]
    finally:
        job_steps.clear_steps(job_steps.folder(__salt__["config.get"]))
    return proof.sign(__opts__, kwargs.get("__pub_jid"), fun, {"return": returned, "retcode": 0})


def working(jid):
    """
    Whether this host still works at a job, and when that made its last step.

    :param jid: the job's id

    :return: {} when it does not; else a dict: ``pid`` and, when it has made a step, ``quiet_s``
        (seconds since the last one) and ``within_s`` (seconds that this one may take)

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.working 20261121010203000001
    """
    running_job = __salt__["saltutil.find_job"](str(jid))
    if not running_job:
        return {}
    return {
        "pid": running_job["pid"],
        **job_steps.last_step(job_steps.folder(__salt__["config.get"]), running_job["pid"]),
    }


def _events_together():
    """While it lasts, steps are told some at a time: by the minion, which ``salt-call`` is not."""
    if __opts__.get("__cli") == "salt-call":
        return contextlib.nullcontext()
    return job_steps.batch_events(functools.partial(events.send_all, {**__opts__}))


def _stale_library_answer(fun, jid):
    """The answer of a process that began before a sync and has imported nothing yet: the new
    library signs that the old one is refused. Without a signature the runner would say that another
    minion may have answered. None where the library is as it was."""
    try:
        _ = errors.VirtError  # the first use of the library
    except Exception as exc:
        if type(exc).__name__ != "StaleLibrary":
            raise
        log.info("%s: %s", fun, exc)
        saltvirt.fresh()
        sign = importlib.import_module("saltvirt.fleet.proof").sign
        return sign(__opts__, jid, fun, {"return": f"ERROR: {exc}", "retcode": 1})
    return None


def _check_function(fun):
    """Raises InvalidInput for what the runner never asks."""
    if not isinstance(fun, str) or not (fun.startswith("virt.") or fun in _EXTRA_FUNCTIONS):
        raise errors.InvalidInput(
            f"fun={units.short_repr(fun)}: it is a function of virt, or {_EXTRA_FUNCTIONS[0]}"
        )


def _call(fun, kwarg):
    """``return`` and ``retcode`` of a function, its error as Salt words it; ``others``: the parts
    that tell of other guests, see saltvirt.rights.confidential."""
    if fun not in __salt__ and not calls.is_handled(fun):
        return {"return": f"'{fun}' is not available.", "retcode": 1}
    with confidential.collect() as parts:
        returned = _returned(fun, kwarg)
    confidential_parts = confidential.to_answer(parts)
    return {**returned, "others": confidential_parts} if confidential_parts else returned


def _returned(fun, kwarg):
    """The same, without what it tells of others."""
    try:
        if calls.is_handled(fun):
            host = calls.Host(__opts__, __salt__)
            return {"return": calls.answer(host, fun, kwarg), "retcode": 0}
        return {"return": __salt__[fun](**kwarg), "retcode": 0}
    except Exception as exc:
        if _is_user_error(exc):
            log.info("%s: %s", fun, exc)
            return {"return": f"ERROR: {exc}", "retcode": 1}
        log.exception("%s", fun)
        message = f"internal error: {exc!r} (the host's minion log has the traceback)"
        return {"return": message, "retcode": 1}


def _is_user_error(exc):
    """Whether it is an error that was raised for a person: one of Salt's, as all of ours are."""
    return any(kind.__name__ == "SaltException" for kind in type(exc).__mro__)
