"""
Guests that run from a backup while its blocks come in. See docs/backups.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import units
    from saltvirt.backup.manager import live_restore
    from saltvirt.operations.core import operation, report

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def backup_instant(name=None, timeout=3600, test=False):
    """
    See a guest through that runs from a backup (``virt.backup_restore`` with ``instant``): wait
    until all its blocks are its own, and let the backup go then. One that was cut off from its
    backup is brought on again: the machine of the target shows it anew, and the guest goes on where
    it was paused. Whoever was killed, the same command goes on.

    :param name: of the guest; default: all that stand on a backup, and none is waited for
    :param timeout: so many seconds it is waited; 0: how far it is
    :param test: show how far each is, change nothing

    :return: under the guest's name ``result`` (False when it was not whole in time, or is cut off),
        ``comment``, ``changes`` (``released``: the backup that it needs no more), ``state``
        (``pulling``, ``cut``, ``off``, ``whole``, ``gone``), ``percent``, ``disks``, ``host``,
        ``target``, ``backup``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_instant web1
        salt-run virt.backup_instant
    """
    limit = units.parse_number(timeout, "timeout") if timeout else 0
    guest = None if name is None else str(name)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, guest or "all", "backup_instant", __salt__)
        return operation.perform(
            live_restore.FinishLiveRestore(fleet, guest, progress, limit), test
        )
