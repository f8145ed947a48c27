"""
Answer the master's runner, signed with the key of this host's minion.

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

# further functions that the runner calls; find_job: for jobs that started before an update
_EXTRA_FUNCTIONS = ("test.ping", "saltutil.find_job")


def __virtual__():
    return __virtualname__


def answer(fun, kwarg=None, **kwargs):
    """
    Call a function of this host, and sign its result or error.

    Salt does not authenticate the returns of jobs: any accepted minion could answer for this host.
    ``salt-run virt.…`` queries hosts through this function and only accepts signed answers.

    :param fun: the function: a function of ``virt``, or ``test.ping``
    :param kwarg: dictionary of its arguments

    :return: a dictionary: ``said`` (``return`` and ``retcode``, as in Salt) and ``proof``

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
    Call a function of this host several times in sequence, and sign the results or errors.
    ``salt-run virt.init`` of several guests uses it to create them in one job.

    :param fun: the function of ``virt``
    :param each: list of dictionaries: the arguments of each call

    :return: as ``virt.answer``; ``return`` is a list of ``return`` and ``retcode`` of each call

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
    Show whether this host is still running a job, and when the job made its last step.

    :param jid: the job's id

    :return: {} if it is not running; otherwise a dictionary: ``pid`` and, if the job has made a
        step, ``quiet_s`` (seconds since the last step) and ``within_s`` (timeout of the current
        step in seconds)

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
    """Send the events of steps in batches during the block; ``salt-call``, which is not the minion,
    sends each one."""
    if __opts__.get("__cli") == "salt-call":
        return contextlib.nullcontext()
    return job_steps.batch_events(functools.partial(events.send_all, {**__opts__}))


def _stale_library_answer(fun, jid):
    """Answer for a process that started before a sync and has not imported the library yet: the new
    library signs that the old one is refused. Without a signature, the runner would report that
    another minion may have answered. None if the library is current."""
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
    """Raise InvalidInput for a function that the runner does not call."""
    if not isinstance(fun, str) or not (fun.startswith("virt.") or fun in _EXTRA_FUNCTIONS):
        raise errors.InvalidInput(
            f"fun={units.short_repr(fun)}: must be a function of virt, or {_EXTRA_FUNCTIONS[0]}"
        )


def _call(fun, kwarg):
    """Call a function; return ``return`` and ``retcode``, with errors as Salt formats them, and
    ``others``: the parts about other guests, see saltvirt.confidential."""
    if fun not in __salt__ and not calls.is_handled(fun):
        return {"return": f"'{fun}' is not available.", "retcode": 1}
    with confidential.collect() as parts:
        returned = _returned(fun, kwarg)
    confidential_parts = confidential.to_answer(parts)
    return {**returned, "others": confidential_parts} if confidential_parts else returned


def _returned(fun, kwarg):
    """Call a function; return ``return`` and ``retcode``."""
    try:
        if calls.is_handled(fun):
            host = calls.MinionContext(__opts__, __salt__)
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
    """Whether an exception was raised for the user: one of Salt's, like all exceptions of Salt
    Virt."""
    return any(kind.__name__ == "SaltException" for kind in type(exc).__mro__)
