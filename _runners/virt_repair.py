"""
Find and repair leftovers of interrupted operations.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.operations import repair as repair_operation
    from saltvirt.operations.core import operation, report

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def repair(apply=False, test=False, name=None, what=None):
    """
    Show leftovers of interrupted operations; with ``apply``, repair them.

    It finds partially created guests, interrupted migrations, guests that exist on two hosts,
    accepted keys without guests, expired authorizations, complete guests whose init was given up or
    killed, and guests of limited users whose owners were not recorded. Findings that need a
    decision are reported and not changed; no suggested command deletes a disk.

    :param apply: repair; default: show
    :param test: only show, even with ``apply``
    :param name: only leftovers of this guest
    :param what: only findings with this code (``half-made``, ``migration-broken-off``,
        ``two-hosts``, ``key-without-guest``, ``pillar-without-key``, ``permission-expired``,
        ``given-up``, ``owner-not-recorded``), or the finding with this ``id``

    :return: under ``repair`` a ``table``, and ``findings``, a list of dictionaries with ``code``,
        ``id``, ``name``, ``host``, ``what``, ``how``, ``evidence`` and the ``command`` that repairs
        it; with ``apply``: ``result``, ``comment``, ``changes`` (``repaired``), ``left``

    CLI Example:

    .. code-block:: bash

        salt-run virt.repair
        salt-run virt.repair name=web1
        salt-run virt.repair apply=True what=half-made:web1:hyper2
        salt-run virt.repair apply=True
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, "repair", "repair", __salt__)
        return operation.perform(
            repair_operation.Repair(fleet, progress, name, what), test or not apply
        )
