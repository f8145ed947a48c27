"""
Back up and restore guests of the cloud, and manage their backups: docs/how-to/backups.md.
"""

import time
from typing import TYPE_CHECKING

import salt.utils.user

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.backup.manager import (
        backup as backup_operation,  # a function here has the same name
    )
    from saltvirt.backup.manager import files, live_restore, replaced_guest, target_upkeep
    from saltvirt.backup.manager import overdue as due_backups
    from saltvirt.backup.manager import restore as restore_operation
    from saltvirt.operations.cluster import hooks
    from saltvirt.operations.core import operation, report, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting_guests
def backup(name, to=None, full=False, test=False, host=None):
    """
    Back up a guest to a target of ``virt:backup:targets``, whose machine reads the guest's disks
    from the hypervisor. Only blocks that changed since the last backup are read; a disk whose
    changes are not known for certain is read completely, and the answer has the reason.

    :param name: name of the guest
    :param to: the target; default: the only one
    :param full: True: read all disks completely
    :param test: show how each disk would be read; change nothing
    :param host: hypervisor of the guest, if you know that it runs nowhere else although hosts do
        not answer

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``backup``: its name),
        ``disks``, ``consistency`` (``frozen``: the guest agent froze the file systems; ``crash``:
        as after a power failure; ``stopped``), ``moved_bytes``, ``stored_bytes``, ``skipped``
        (drives that are not part of backups)

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup web1 to=vault
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "backup", __salt__)
        user = salt.utils.user.get_specific_user()
        backup_job = backup_operation.CreateBackup(fleet, name, to, progress, full, user, host)
        return operation.perform(backup_job, test)


@runner.reporting
def backup_due(guests="*", hours=24, to=None, at_once=4, test=False, scheduled=False):
    """
    Back up every guest whose newest good backup is older than ``hours``. Use it in a schedule of
    the master: guests with a recent backup are skipped, and failed backups are retried at the next
    run. A guest's own schedule (``backup`` of ``virt.deployed``) overrides ``hours`` and ``to``, or
    excludes it.

    :param guests: shell pattern of guest names, or a list of patterns
    :param hours: maximum age of a guest's newest good backup
    :param to: the target, which must also have the recent backup; default: a recent backup at any
        target counts, and a new one goes to the default target
    :param at_once: maximum number of concurrent backups, at most 100; further limited by
        ``virt:backup:at_once_per_host`` and ``at_once_per_target``
    :param test: show which guests have a recent backup and which would be backed up; change nothing
    :param scheduled: True: only guests with a schedule of their own

    :return: for each guest the answer of ``virt.backup``, or ``comment``: its newest backup with
        its age. Hosts that do not answer are listed, and the exit code is 1, also if a backup
        fails; the other guests are backed up.

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_due 'web*' hours=26 to=vault
    """
    request = due_backups.OverdueRequest.parse(guests, hours, to, at_once, bool(scheduled))
    with Fleet(__opts__) as fleet:
        screen = report.screen(__salt__, __opts__)
        user = salt.utils.user.get_specific_user()
        return operation.perform(
            due_backups.BackUpOverdue(fleet, request, screen, user, time.time), test
        )


@runner.reporting
def backups(name=None, to=None):
    """
    List the backups.

    :param name: name of a guest; default: all guests
    :param to: the target; default: all targets

    :return: target to a list, for each guest the oldest first: ``backup_id``, ``guest``, ``uuid``,
        ``taken_at``, ``age_s``, ``host``, ``consistency``, ``disks`` (disk to ``full``, or to the
        backup that it depends on), ``stored_bytes``, ``problem`` (why it is not good, or null);
        ``unreachable``: target to the reason. Without a target, it fails with ``configured``
        False

    CLI Example:

    .. code-block:: bash

        salt-run virt.backups web1
    """
    with Fleet(__opts__) as fleet:
        try:
            by_target, silent = backup_operation.list_all(
                fleet, None if name is None else str(name), to
            )
        except errors.NotConfigured as exc:
            return result.failed(str(name or "virt"), exc.text, configured=False)
    return {**by_target, **({"unreachable": silent, "retcode": 1} if silent else {})}


@runner.reporting
def backup_restore(
    name, backup="latest", to=None, new=None, host=None, overcommit=False, name_is_free=False,
    in_place=False, stop=False, disk=None, missing=False, test=False, instant=False, seed=None,
    damaged=False,
):  # fmt: skip
    """
    Restore a guest from a backup. The restored guest is off, and its disks are files of their own.
    With ``instant`` it runs within seconds, while its disks are still being copied.

    Without ``new``, the guest itself is restored, with its UUID and addresses; it must not exist
    any more. With ``new``, another guest is created with a UUID and addresses of its own; if it was
    seeded, it gets a new machine-id, host name, SSH host keys and minion identity. With
    ``in_place``, the restored guest replaces the existing one. Existing data is not written to, and
    nothing is deleted before ``virt.backup_confirm``; ``virt.backup_undo`` brings the previous
    guest back.

    :param name: name or UUID of the guest that was backed up
    :param backup: name or number of the backup, or ``latest``
    :param to: target that has the backup; default: as for ``virt.backup``
    :param new: name of the new guest
    :param host: the hypervisor; default: the one that had the guest
    :param overcommit: restore even if the host does not have enough free capacity
    :param name_is_free: True: you know that no hypervisor that does not answer has a guest of this
        name. Not needed for hosts that high availability has proven to be off, or that
        ``virt.ha_confirm_off`` has declared off
    :param in_place: True: replace the existing guest, which must be off, have no snapshots, and not
        be managed by high availability
    :param stop: with ``in_place``: power off the guest when the new disks are ready
    :param disk: restore only this disk, for example ``vdb``: with ``in_place`` it replaces the
        guest's disk, otherwise it is a file that no guest has
    :param missing: True: do nothing if a guest of this name exists
    :param test: show what would be done; change nothing
    :param instant: True: start the guest immediately from the backup that the target's machine
        exports; ``virt.backup_instant`` waits until the guest no longer needs the backup. Together
        with ``new``, it requires ``seed=False``
    :param seed: with ``new``: whether the system in the guest gets an identity of its own; default:
        if the guest was seeded
    :param damaged: True: restore also from a backup that is not good, as far as it can be read.
        Unreadable blocks are zeros, and a disk whose file is missing is left out

    :return: under the new guest's name ``result``, ``comment``, ``changes`` (``backup``; ``path``
        for a file), ``host``, ``uuid``, ``target``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_restore web1 new=web1-monday backup=7
    """
    request = restore_operation.RestoreRequest(
        str(name), str(backup), to, None if new is None else str(new), host,
        bool(overcommit), bool(name_is_free), bool(in_place), bool(stop),
        None if disk is None else str(disk), bool(missing), hooks.off_proofs(__opts__),
        bool(instant), seed=None if seed is None else bool(seed), damaged=bool(damaged),
    )  # fmt: skip
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.guest_name, "backup_restore", __salt__)
        return operation.perform(restore_operation.RestoreBackup(fleet, request, progress), test)


@runner.reporting_guests
def backup_confirm(name, test=False, host=None):
    """
    Keep the guest, or the disk, that ``virt.backup_restore`` with ``in_place`` has restored: the
    replaced disks are deleted if they are the guest's own and no other guest uses them.

    :param name: name of the guest
    :param test: show what would be deleted; change nothing
    :param host: hypervisor with the replaced disks, if the guest was migrated since or does not
        exist any more

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``deleted``: paths),
        ``keep`` (path to the reason why it is kept), ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_confirm web1
    """
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, str(name), "backup_confirm", __salt__)
        return operation.perform(replaced_guest.CommitRestore(fleet, name, progress, host), test)


@runner.reporting_destructive
def backup_undo(name, stop=False, test=False, host=None):
    """
    Undo ``virt.backup_restore`` with ``in_place``: the replaced guest is brought back. The restored
    disks are deleted, including everything that was written to them since.

    :param name: name of the guest
    :param stop: True: power off the guest first
    :param test: show what would be done; change nothing
    :param host: hypervisor that had the guest, if the guest does not exist any more

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


@runner.reporting
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


@runner.reporting
def backup_verify(name=None, backup="all", to=None, days=None, test=False, limit=None):
    """
    Verify backups at their target: read them and compare them with the digests of the data that was
    read from the guest. The result is recorded with each backup. A broken backup is no longer good,
    and the next backup reads that disk completely.

    :param name: name or UUID of a guest; default: all guests
    :param backup: ``all``, ``latest``, or the name or number of a backup, for each guest
    :param to: the target; default: all targets
    :param days: only backups that were not verified within this number of days
    :param test: show which machines would read; read nothing
    :param limit: maximum number of backups of each target, starting with those that were not
        verified for the longest time

    :return: under the target's name ``result`` (False when one is not good), ``comment``,
        ``backups`` (a list: ``guest``, ``uuid``, ``backup_id``, ``verification``, ``problem``,
        ``error``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_verify web1 latest
        salt-run virt.backup_verify days=30
    """
    if days is not None:
        days = units.parse_number(days, "days")
    selection = _backup_name(backup)
    count = None if limit is None else units.parse_count(limit, "limit")
    with Fleet(__opts__) as fleet:
        guest = None if name is None else str(name)
        progress = report.of_runner(fleet, guest or "all", "backup_verify", __salt__)
        verification = target_upkeep.Verify(fleet, guest, to, progress, selection, days, count)
        return operation.perform(verification, test)


@runner.reporting
def backup_ls(name, path="/", backup="latest", to=None, filesystem=None):
    """
    List a folder of a guest from a backup. The target's machine reads the backup with libguestfs.

    :param name: name or UUID of the guest that was backed up
    :param path: folder or file in the guest
    :param backup: name or number of the backup, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: read only this file system, as ``/``; its device as returned in
        ``filesystems``; default: everything that the guest's system mounts

    :return: under the guest's name ``result``, ``comment``, ``backup``, ``files`` (a list of at
        most 1000: ``name``, ``kind``, ``size_bytes``, ``mode``, ``changed_s``, ``link``),
        ``filesystems`` (device to kind), ``missing`` (file systems that the guest mounts and that
        could not be read; the exit code is then 1), ``host``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_ls web1 /etc
    """
    request = _files_request(name, path, backup, to, filesystem)
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.name, "backup_ls", __salt__)
        return files.ListFiles(fleet, request, progress).run().answer()


@runner.reporting
def backup_get(
    name, path, dest=None, backup="latest", to=None, filesystem=None, max_size="1GiB", test=False
):
    """
    Copy a file of a guest from a backup to the target's machine, where only root can read it; a
    folder is stored as a tar file. The content is transferred neither to the master nor in a job.

    :param name: name or UUID of the guest that was backed up
    :param path: file or folder in the guest; links are followed inside the guest
    :param dest: path on the target's machine; it must not exist, and only root may write to its
        folder; default: a new path below ``/var/lib/salt-virt/backup-files``
    :param backup: name or number of the backup, or ``latest``
    :param to: the target; default: as for ``virt.backup``
    :param filesystem: read only this file system, as ``/``; its device as returned by
        ``virt.backup_ls``; default: everything that the guest's system mounts
    :param max_size: maximum size in MiB, or with a unit
    :param test: show what would be copied; write nothing

    :return: under the guest's name ``result``, ``comment``, ``changes`` (``path``), ``backup``,
        ``host``, ``size_bytes``

    CLI Example:

    .. code-block:: bash

        salt-run virt.backup_get web1 /etc/fstab
    """
    request = _files_request(name, path, backup, to, filesystem)
    limit = units.parse_bytes(max_size, argument="max_size")
    dest_path = None if dest is None else _text(dest, "dest")
    with Fleet(__opts__) as fleet:
        progress = report.of_runner(fleet, request.name, "backup_get", __salt__)
        return operation.perform(
            files.ExtractFile(fleet, request, progress, dest_path, limit), test
        )


def _files_request(name, path, backup, to, filesystem):
    only_filesystem = None if filesystem is None else _text(filesystem, "filesystem")
    return files.FilesRequest(
        str(name), _text(path, "path"), _backup_name(backup), to, only_filesystem
    )


def _backup_name(backup):
    if isinstance(backup, bool) or not isinstance(backup, (str, int)):
        raise errors.InvalidInput(
            f"backup must be a name or a number, not {units.short_repr(backup)}"
        )
    return str(backup)


def _text(value, argument):
    if not isinstance(value, str):
        raise errors.InvalidInput(f"{argument} must be text, not {units.short_repr(value)}")
    return value


@runner.reporting
def backup_instant(name=None, timeout=3600, test=False):
    """
    Finish a live restore (``virt.backup_restore`` with ``instant``): wait until all blocks have
    been copied, then unpin the backup. If the guest has lost the connection to its backup, the
    target's machine exports the backup again, and the guest resumes where it was paused. If this
    command was interrupted, run it again.

    :param name: name of the guest; default: all guests that run from a backup, without waiting
    :param timeout: seconds to wait; 0: only show the progress
    :param test: show the progress of each guest; change nothing

    :return: under the guest's name ``result`` (False if blocks are missing after ``timeout``, or
        the guest has lost the connection to its backup), ``comment``, ``changes`` (``released``:
        the backup that the guest no longer needs), ``state`` (``pulling``, ``disconnected``,
        ``off``, ``complete``, ``missing``), ``percent``, ``disks``, ``host``, ``target``,
        ``backup``

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
