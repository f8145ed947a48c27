"""
What targets of backups keep: removed by their rules, read back. See docs/backups.md.
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
    Remove the backups that no rule of their target keeps (``virt:backup:retention``). What a backup
    that stays stands on stays, too, and so does the newest good one of each guest, and one that is
    being read.

    :param name: of one guest, or its UUID; default: all guests'
    :param to: the target; default: all
    :param test: show what would be removed, and why the others stay; change nothing

    :return: under the target's name ``result``, ``comment``, ``changes`` (guest to ``removed``, a
        list of backups), ``backups`` (guest to backup to why it stays), ``trouble`` (guest to why
        nothing of it was removed)

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
    Read backups back, at their target, and compare them with the digests of what was read of the
    guest. What is found is put down beside each backup; one that is broken is not good any more,
    and the next backup reads that disk whole.

    :param name: of one guest, or its UUID; default: all guests'
    :param backup: of each guest ``all``, ``latest``, or the name or number of one
    :param to: the target; default: all
    :param days: only backups that were not read back in so many days
    :param test: show who would read, read nothing
    :param most: of each target no more than so many, those first that were not read back for the
        longest time

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
