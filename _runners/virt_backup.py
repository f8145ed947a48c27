"""
Backups of guests, wherever they run: docs/backups.md.
"""

import time
from typing import TYPE_CHECKING

import salt.utils.user

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.backup.manager import backup as backing_up  # the name is a function's here
    from saltvirt.backup.manager import overdue as due_backups
    from saltvirt.backup.manager import replaced_guest
    from saltvirt.backup.manager import restore as restoring
    from saltvirt.ha.manager import factory
    from saltvirt.operations.core import operation, report

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
        progress = report.of_runner(fleet, str(name), "backup", __salt__)
        user = salt.utils.user.get_specific_user()
        backup_job = backing_up.CreateBackup(fleet, name, to, progress, whole, user, host)
        return operation.perform(backup_job, test)


@result.reporting
def backup_due(guests="*", hours=24, to=None, at_once=4, test=False, said=False):
    """
    Back up each guest that has no good backup which is younger than that. For a schedule of the
    master's: what was made a while ago is left, and what failed is tried again the next time. A
    guest that says itself how it is to be backed up (``backup`` of ``virt.deployed``) is asked for
    its own hours and target, or is left.

    :param guests: a shell pattern of names, or a list of them
    :param hours: so old may a guest's last good backup be
    :param to: the target, where that backup is, too; default: it may be at any, and a new one is
        made at the default target
    :param at_once: so many guests are backed up at a time, 100 at most; fewer where
        ``virt:backup:at_once_per_host`` or ``at_once_per_target`` says so
    :param test: show which have one and which would be backed up, change nothing
    :param said: True: only guests that say themselves how

    :return: of each guest what ``virt.backup`` returns, or ``comment``: which backup it has, and
        how old. What a silent host has is not known: it is named, and the exit code is 1, as when
        a backup fails; the other guests are backed up.

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_due 'web*' hours=26 to=vault
    """
    request = due_backups.OverdueRequest.parse(guests, hours, to, at_once, bool(said))
    with Fleet(__opts__) as fleet:
        screen = report.screen(__salt__, __opts__)
        user = salt.utils.user.get_specific_user()
        return operation.perform(
            due_backups.BackUpOverdue(fleet, request, screen, user, time.time), test
        )


@result.reporting
def backups(name=None, to=None):
    """
    The backups that there are.

    :param name: of one guest; default: of all
    :param to: at that target; default: at all

    :return: target to a list, the oldest of each guest first: ``ident``, ``guest``, ``uuid``,
        ``when``, ``age_s``, ``host``, ``consistency``, ``disks`` (disk to ``whole``, or the backup
        that it stands on), ``stored_bytes``, ``wrong`` (why it is not good, or null);
        ``unreachable``: target to why it did not say

    CLI Example:

    .. code-block:: bash

        salt-run virt.backups web1
    """
    with Fleet(__opts__) as fleet:
        by_target, silent = backing_up.list_all(fleet, None if name is None else str(name), to)
    return {**by_target, **({"unreachable": silent, "retcode": 1} if silent else {})}


@result.reporting
def backup_restore(
    name, backup="latest", to=None, new=None, host=None, overcommit=False, name_is_free=False,
    over=False, stop=False, disk=None, missing=False, test=False, instant=False, seed=None,
    damaged=False,
):  # fmt: skip
    """
    Make a guest again from a backup. It is off, its disks are files of their own. With ``instant``
    it runs within seconds, and the blocks of its disks come in meanwhile.

    Without ``new`` it is the guest itself, with its UUID and addresses: only where there is no
    guest of the name any more. With ``new`` it is another one beside it, with UUID and addresses
    of its own, and the system in it, where it was seeded, gets a machine-id, a host name, SSH host
    keys and a minion of its own. With ``over`` it takes the place of the guest that is there.
    Nothing that is there is written to, and nothing deleted before ``virt.backup_confirm``;
    ``virt.backup_undo`` brings back what was there.

    :param name: of the guest that was backed up, or its UUID
    :param backup: the backup's name, its number, or ``latest``
    :param to: the target that has it; default: as for ``virt.backup``
    :param new: name of the new guest
    :param host: the hypervisor; default: that which had the guest
    :param overcommit: do it also where that has promised its room to others
    :param name_is_free: you know that no silent hypervisor has a guest of the name. Of one that
        high availability has proven to be off, or of which ``virt.ha_confirm_off`` was said, it
        is known
    :param over: True: it takes the place of the guest, which is off, has no snapshots and is not
        kept by high availability
    :param stop: with ``over``: power the guest off, once the new disks are there
    :param disk: this disk alone, as ``vdb``: with ``over`` in the place of the guest's, else as a
        file beside it, which no guest has
    :param missing: True: where there is a guest of the name, all is well and nothing is done
    :param test: show what would be done, change nothing
    :param instant: True: it is started at once, from the backup that the machine of the target
        shows; ``virt.backup_instant`` waits until it needs that no more. With ``new`` only with
        ``seed=False``
    :param seed: with ``new``: whether the system in it gets an identity of its own; default: when
        the guest was seeded
    :param damaged: True: also from a backup that is not good: what can be read of it. What cannot
        is zeros, and a disk whose file is gone is left out

    :return: under the new guest's name ``result``, ``comment``, ``changes`` (``backup``; ``path``
        of a file), ``host``, ``uuid``, ``target``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_restore web1 new=web1-monday backup=7
    """
    request = restoring.RestoreRequest(
        str(name), str(backup), to, None if new is None else str(new), host,
        bool(overcommit), bool(name_is_free), bool(over), bool(stop),
        None if disk is None else str(disk), bool(missing), factory.off_proofs(__opts__),
        bool(instant), seed=None if seed is None else bool(seed), damaged=bool(damaged),
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.guest_name, "backup_restore", __salt__)
        return operation.perform(restoring.RestoreBackup(fleet, request, progress), test)


@result.reporting
def backup_confirm(name, test=False, host=None):
    """
    The guest, or the disk, that ``virt.backup_restore`` with ``over`` has made stays: what it had
    before is deleted, as far as it is its own and nobody else uses it.

    :param name: of the guest
    :param test: show what would be deleted, change nothing
    :param host: where that is, of a guest that was moved since or is no more

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``deleted``: paths),
        ``keep`` (path to why it stays), ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_confirm web1
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "backup_confirm", __salt__)
        return operation.perform(replaced_guest.CommitRestore(fleet, name, progress, host), test)


@result.reporting
def backup_undo(name, stop=False, test=False, host=None):
    """
    The guest is again as it was before ``virt.backup_restore`` with ``over``. What that made is
    deleted, with all that was written to it since.

    :param name: of the guest
    :param stop: True: power it off for that
    :param test: show what would be done, change nothing
    :param host: which had it, of a guest that is no more

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``undone``), ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_undo web1
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "backup_undo", __salt__)
        return operation.perform(
            replaced_guest.RollbackRestore(fleet, name, progress, bool(stop), host), test
        )
