"""
Backups of guests, wherever they run: docs/backups.md.
"""

from typing import TYPE_CHECKING

import salt.utils.user

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.backupmaster import backup as backing_up  # the name is a function's here
from saltvirt.backupmaster import restore as restoring
from saltvirt.fleet.client import Fleet
from saltvirt.operations import operation, report, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def backup(name, to=None, whole=False, test=False, host=None):
    """
    Back a guest up: to a target that ``virt:backup:targets`` names, where a machine of its own
    reads the guest's disks from the hypervisor. What changed since the last backup there is
    read; a disk of which that is not known for sure is read whole, and the answer says why.

    :param name: of the guest
    :param to: the target; default: the only one
    :param whole: True to read all disks whole
    :param test: show how each disk would be read, change nothing
    :param host: where it is: you know that it runs nowhere else, whoever is silent

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``backup``: what it is
        called), ``disks``, ``consistency`` (``frozen``: the guest's agent froze its file systems;
        ``crash``: as after a power loss; ``stopped``), ``moved_bytes``, ``stored_bytes``,
        ``skipped`` (drives that are in no backup)

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup web1 to=vault
    """
    with Fleet(__opts__) as fleet:
        shown = report.of_runner(fleet, str(name), "backup", __salt__)
        by = salt.utils.user.get_specific_user()
        one = backing_up.Backup(fleet, name, to, shown, whole, by, host)
        return operation.perform(one, test)


@result.reporting
def backups(name=None, to=None):
    """
    The backups that there are.

    :param name: of one guest; default: of all
    :param to: at that target; default: at all

    :return: target to a list, the oldest of each guest first: ``ident``, ``guest``, ``uuid``,
        ``when``, ``host``, ``consistency``, ``disks`` (disk to ``whole``, or the backup that it
        stands on), ``stored_bytes``, ``wrong`` (why it is not good, or null); ``unreachable``:
        target to why it did not say

    CLI Example:

    .. code-block:: bash

        salt-run virt.backups web1
    """
    with Fleet(__opts__) as fleet:
        found, silent = backing_up.listed(fleet, None if name is None else str(name), to)
    return {**found, **({"unreachable": silent, "retcode": 1} if silent else {})}


@result.reporting
def backup_restore(
    name, backup="latest", to=None, new=None, host=None, overcommit=False, name_is_free=False,
    test=False,
):  # fmt: skip
    """
    Make a guest again from a backup. It is off, its disks are files of their own.

    Without ``new`` it is the guest itself, with its UUID and addresses: only where there is no
    guest of the name any more. With ``new`` it is another one beside it, with UUID and addresses
    of its own; the system in it still calls itself by the old name. Nothing that is there is
    written to.

    :param name: of the guest that was backed up, or its UUID
    :param backup: the backup's name, its number, or ``latest``
    :param to: the target that has it; default: as for ``virt.backup``
    :param new: name of the new guest
    :param host: the hypervisor; default: that which had the guest
    :param overcommit: do it also where that has promised its room to others
    :param name_is_free: you know that no silent hypervisor has a guest of the name
    :param test: show what would be done, change nothing

    :return: under the new guest's name ``result``, ``comment``, ``changes`` (``backup``),
        ``host``, ``uuid``, ``target``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_restore web1 new=web1-monday backup=7
    """
    asked = restoring.RestoreRequest(
        str(name), str(backup), to, None if new is None else str(new), host,
        bool(overcommit), bool(name_is_free),
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        shown = report.of_runner(fleet, asked.made, "backup_restore", __salt__)
        return operation.perform(restoring.Restore(fleet, asked, shown), test)
