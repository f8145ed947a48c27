"""
Prune and verify the backups of targets. See docs/how-to/backups.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.backup.manager import target_upkeep
    from saltvirt.operations.core import operation, report

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def backup_prune(name=None, to=None, test=False):
    """
    Remove the backups that no retention rule of their target keeps (``virt:backup:retention``).
    Backups that a kept backup depends on, the newest good backup of each guest, and backups that
    are being read are kept.

    :param name: name or UUID of a guest; default: all guests
    :param to: the target; default: all targets
    :param test: show what would be removed, and why other backups are kept; change nothing

    :return: under the target's name ``result``, ``comment``, ``changes`` (guest to ``removed``, a
        list of backups), ``backups`` (guest to backup to the reason why it is kept), ``trouble``
        (guest to the reason why nothing was removed)

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_prune test=True
        salt-run virt.backup_prune web1 to=vault
    """
    with Fleet(__opts__) as fleet:
        guest = None if name is None else str(name)
        progress = report.of_runner(fleet, guest or "all", "backup_prune", __salt__)
        return operation.perform(target_upkeep.Prune(fleet, guest, to, progress), test)


@result.reporting
def backup_verify(name=None, backup="all", to=None, days=None, test=False, most=None):
    """
    Verify backups at their target: read them and compare them with the digests of the data that was
    read from the guest. The result is recorded with each backup. A broken backup is no longer good,
    and the next backup reads that disk completely.

    :param name: name or UUID of a guest; default: all guests
    :param backup: ``all``, ``latest``, or the name or number of a backup, for each guest
    :param to: the target; default: all targets
    :param days: only backups that were not verified within this number of days
    :param test: show which machines would read; read nothing
    :param most: maximum number of backups of each target, starting with those that were not
        verified for the longest time

    :return: under the target's name ``result`` (False when one is not good), ``comment``,
        ``backups`` (a list: ``guest``, ``uuid``, ``ident``, ``verified``, ``wrong``, ``trouble``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_verify web1 latest
        salt-run virt.backup_verify days=30
    """
    if days is not None:
        days = units.parse_number(days, "days")
    if backup is None or isinstance(backup, bool) or not isinstance(backup, (str, int)):
        raise errors.InvalidInput(
            f"backup must be a name or a number, not {units.short_repr(backup)}"
        )
    count = None if most is None else units.parse_count(most, "most")
    with Fleet(__opts__) as fleet:
        guest = None if name is None else str(name)
        progress = report.of_runner(fleet, guest or "all", "backup_verify", __salt__)
        verification = target_upkeep.Verify(fleet, guest, to, progress, str(backup), days, count)
        return operation.perform(verification, test)
