"""
Manage guests that run from a backup during a live restore. See docs/how-to/backups.md.
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
    Finish a live restore (``virt.backup_restore`` with ``instant``): wait until all blocks have
    been copied, then unpin the backup. If the guest has lost the connection to its backup, the
    target's machine exports the backup again, and the guest resumes where it was paused. If this
    command was interrupted, run it again.

    :param name: name of the guest; default: all guests that run from a backup, without waiting
    :param timeout: seconds to wait; 0: only show the progress
    :param test: show the progress of each guest; change nothing

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
