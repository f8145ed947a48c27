"""
Guests of the whole cloud, as a state of an orchestration on the master.
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.errors import VirtError
from saltvirt.states import desired, result

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def deployed(name, guests, defaults=None, remove=False, at_once=4, **kwargs):
    """
    The guests of a list are somewhere in the cloud: placed, made and started when they are not
    there. Those that are there are left as they are, and the comment names what differs. For
    ``salt-run state.orchestrate``; see :func:`running` for the guests of one hypervisor.

    :param name: of the deployment
    :param guests: a dict of name to a dict: ``cpu`` (1), ``mem``, ``image``, ``size`` (of the
        disk that the default profile calls ``system``), ``disk`` and ``nic`` (names of
        profiles), ``groups``, ``group_policy``, ``host``, ``wait``, and every other argument of
        ``virt.init``
    :param defaults: a dict of what a guest does not say itself
    :param remove: also remove the guests that were made for this deployment and are not listed
        any more, with their own disks and keys. Without it they are only named in the comment.
        An empty list removes nothing.
    :param at_once: how many are made at the same time

    :return: ``changes``: guest to ``old`` and ``new``, the host. With ``test=True`` the same and
        nothing is made. When a guest fails the others are made, and ``result`` is False.

    .. code-block:: yaml

        shop:
          virt.deployed:
            - defaults:
                image: salt://debian.qcow2
            - guests:
                web1: {cpu: 2, mem: 2GiB, groups: [web]}
                web2: {cpu: 2, mem: 2GiB, groups: [web]}

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.deployed name=shop guests='{web1: {mem: 512}}'
    """
    try:
        desired.only_known(kwargs, deployed)
    except VirtError as exc:
        return result.answer(name, failures=[exc])
    arguments = {
        "guests": guests, "deployment": name, "defaults": defaults, "remove": remove,
        "at_once": at_once, "test": __opts__["test"],
    }  # fmt: skip
    told = _runner("virt.deployed", name, arguments)
    changes, comment = told.get("changes", {}), told["comment"]
    if told["result"] is False:
        return result.answer(name, changes, failures=[comment])
    return result.answer(name, changes, comment, __opts__["test"])


def _runner(function, about, arguments):
    """What a runner says of one thing."""
    if "saltutil.runner" not in __salt__:
        return {"result": False, "comment": "this state is for an orchestration on the master"}
    told = __salt__["saltutil.runner"](function, kwarg=arguments)
    if not isinstance(told, dict) or about not in told.get("data", {}):
        text = (
            f"{function} gave no answer: {told}. This state is for an orchestration on the master"
        )
        return {"result": False, "comment": text}
    return told["data"][about]
