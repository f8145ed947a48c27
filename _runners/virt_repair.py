"""
What interrupted operations have left: found and repaired.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.operations import repair as repairing
    from saltvirt.operations.core import operation, report

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def repair(apply=False, test=False, name=None, what=None):
    """
    Leftovers of operations that were interrupted: shown, and with ``apply`` repaired.

    Guests that an interrupted init has partially created, migrations that were broken off,
    guests on two hosts, accepted keys of guests that are on no host, permissions that
    have expired, guests whose init was given up or killed and that are whole, guests of limited
    users whose owners were not recorded. What a person
    must decide is named and left alone; nothing that is advised deletes a disk.

    :param apply: repair; default: show
    :param test: show, whatever ``apply`` says
    :param name: only what is left of this guest
    :param what: only findings of this code (``half-made``, ``migration-broken-off``,
        ``two-hosts``, ``key-without-guest``, ``pillar-without-key``, ``permission-expired``,
        ``given-up``, ``owner-not-recorded``), or the one of this ``id``

    :return: under ``repair`` ``table`` of what was found, and ``findings``, a list of dicts with
        ``code``, ``id``, ``name``, ``host``, ``what``, ``how``, ``evidence`` and the ``command``
        that repairs it; when applied ``result``, ``comment``, ``changes`` (``repaired``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.repair
        salt-run virt.repair name=web1
        salt-run virt.repair apply=True what=half-made:web1:hyper2
        salt-run virt.repair apply=True
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, "repair", "repair", __salt__)
        return operation.perform(repairing.Repair(fleet, progress, name, what), test or not apply)
