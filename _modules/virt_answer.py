"""
What this host answers to the master's runner, signed with the key of its minion.

:depends: cryptography, which Salt brings
"""

import logging
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors, units
from saltvirt.fleet import proof
from saltvirt.host.node import steps
from saltvirt.spec import base

if TYPE_CHECKING:
    from salt_dunders import __context__, __opts__, __salt__

__virtualname__ = "virt"
log = logging.getLogger(__name__)

# what the runner asks beside functions of this module; find_job: one that began before the update
_OTHERS = ("test.ping", "saltutil.find_job")


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
    if not isinstance(fun, str) or not (fun.startswith("virt.") or fun in _OTHERS):
        raise errors.InvalidInput(
            f"fun={units.shown(fun)}: it is a function of virt, or {_OTHERS[0]}"
        )
    given = base.mapping(kwarg or {}, "kwarg")
    try:
        returned = _called(fun, given)
    finally:
        steps.ended(steps.folder(__salt__["config.get"]))
    if returned["retcode"]:
        __context__["retcode"] = returned["retcode"]
    return proof.sign(__opts__, kwargs.get("__pub_jid"), fun, returned)


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
    found = __salt__["saltutil.find_job"](str(jid))
    if not found:
        return {}
    return {"pid": found["pid"], **steps.last(steps.folder(__salt__["config.get"]), found["pid"])}


def _called(fun, kwarg):
    """``return`` and ``retcode`` of a function, its error as Salt words it."""
    if fun not in __salt__:
        return {"return": f"'{fun}' is not available.", "retcode": 1}
    try:
        return {"return": __salt__[fun](**kwarg), "retcode": 0}
    except Exception as exc:
        if _has_words(exc):
            log.info("%s: %s", fun, exc)
            return {"return": f"ERROR: {exc}", "retcode": 1}
        log.exception("%s", fun)
        why = f"internal error: {exc!r} (the host's minion log has the traceback)"
        return {"return": why, "retcode": 1}


def _has_words(exc):
    """Whether it is an error that was raised for a person: one of Salt's, as all of ours are."""
    return any(kind.__name__ == "SaltException" for kind in type(exc).__mro__)
