"""
A set of guests as pillar lists them. See docs/orchestration.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import units
    from saltvirt.backup.manager import schedules
    from saltvirt.ha.manager import factory
    from saltvirt.operations.core import operation, report
    from saltvirt.operations.create import deploy
    from saltvirt.placement import policy
    from saltvirt.spec import base

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def deployed(guests, deployment="default", defaults=None, remove=False, at_once=4, test=False):
    """
    Deploy the guests of a list that are not there. Those that are there are left, and what
    differs is named.

    All are placed before the first is made, the biggest first, each as if the ones before it
    were there: the hosts are asked once for all guests that are alike. A guest that may be on a
    host which does not answer is not made again.

    :param guests: a dict of name to a dict: ``cpu`` (1), ``mem``, ``image``, ``size`` (of the
        disk that the default profile calls ``system``), ``disk`` and ``nic`` (names of
        profiles), ``groups``, ``group_policy``, ``host``, ``wait``, and every other argument of
        ``virt.init``. ``ha`` (True, False or a mapping, as for ``virt.init``) holds of guests that
        are there, too: they are given to high availability, or taken from it. So does ``backup``:
        ``{hours: 24, to: vault}``, True, or False for none; ``virt.backup_due`` goes by it
    :param deployment: the name of the set
    :param defaults: a dict of what a guest does not say itself
    :param remove: also remove the guests that were made for this deployment and are not listed
        any more, with their own disks and keys. An empty list removes nothing.
    :param at_once: how many are made at the same time; those that are started, or waited for,
        are not counted
    :param test: only say what would be done

    :return: under the deployment's name ``result`` (False when one failed), ``comment``,
        ``changes``: guest to ``old`` and ``new`` host, and what changed of ``ha`` and ``backup``;
        ``there``, ``differs``, ``unlisted``, ``failed``

    CLI Example:

    .. code-block:: bash

        salt-run virt.deployed '{web1: {mem: 2048, image: salt://debian.qcow2}}' test=True
    """
    name, default_args = str(deployment), base.mapping(defaults or {}, "defaults")
    opts, count = dict(__opts__), units.parse_count(at_once, "at_once")
    backed, requests = schedules.BackupSchedules(opts), []
    for guest, options in base.mapping(guests or {}, "guests").items():
        arguments = {**default_args, **base.mapping(options or {}, f"guest {guest}")}
        requests.append(
            deploy.parse_guest(guest, backed.with_schedule(str(guest), arguments), name)
        )
    placement_policy, screen = policy.of_master(opts), report.screen(__salt__, opts)
    with Fleet(opts) as fleet:  # Salt's dunders are not there in its threads
        deployment_job = deploy.Deploy(
            fleet, placement_policy, requests, name, remove=remove, at_once=count, screen=screen,
            provider=factory.ha_provider(opts), extra_step=backed,
        )  # fmt: skip
        return operation.perform(deployment_job, test)
