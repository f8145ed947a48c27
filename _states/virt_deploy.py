"""
Deployment state for orchestrations on the master.
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
    Ensure that the guests of a list exist in the cloud. Missing guests are placed, created and
    started; existing guests are not changed, and the comment lists their differences. For
    ``salt-run state.orchestrate``; see :func:`running` for the guests of a single hypervisor.

    :param name: name of the deployment
    :param guests: dictionary of guest names to dictionaries: ``cpu`` (1), ``mem``, ``image``,
        ``size`` (of the disk ``system`` of the default profile), ``disk`` and ``nic`` (profile
        names), ``groups``, ``group_policy``, ``host``, ``wait``, and all other arguments of
        ``virt.init``. ``ha`` (True, False or a dictionary, as for ``virt.init``) also applies to
        existing guests: high availability is enabled or disabled for them. So does ``backup``, the
        schedule of ``virt.backup_due``: ``{hours: 24, to: vault}``, True, or False for none
    :param defaults: dictionary of default values for all guests
    :param remove: also remove guests that were created for this deployment and are no longer
        listed, with their own disks and keys. An empty list removes nothing.
    :param at_once: maximum number of guests that are created at the same time

    :return: ``changes``: guest to ``old`` and ``new`` host, and changes of ``ha`` and ``backup``.
        With ``test=True`` nothing is created. If a guest fails, the others are created, and
        ``result`` is False.

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
