"""
Guests of the whole cloud, as a state of an orchestration on the master.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import deployments, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

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
        ``virt.init``. ``ha`` (True, False or a mapping, as for ``virt.init``) holds of guests that
        are there, too: they are given to high availability, or taken from it. So does ``backup``:
        ``{hours: 24, to: vault}``, True, or False for none; ``virt.backup_due`` goes by it
    :param defaults: a dict of what a guest does not say itself
    :param remove: also remove the guests that were made for this deployment and are not listed
        any more, with their own disks and keys. Without it they are only named in the comment.
        An empty list removes nothing.
    :param at_once: how many are made at the same time

    :return: ``changes``: guest to ``old`` and ``new``, the host, and what changed of ``ha`` and
        ``backup``. With ``test=True`` the same and nothing is made. When a guest fails the others
        are made, and ``result`` is False.

    .. code-block:: yaml

        shop:
          virt.deployed:
            - defaults:
                image: salt://debian.qcow2
            - guests:
                web1: {cpu: 2, mem: 2GiB, groups: [web], ha: true}
                web2: {cpu: 2, mem: 2GiB, groups: [web]}

    CLI Example:

    .. code-block:: bash

        salt-run state.orchestrate_single fun=virt.deployed name=shop guests='{web1: {mem: 512}}'
    """
    return result.run("virt.deployed", locals(), __salt__, __opts__["test"], deployments.deployed)
