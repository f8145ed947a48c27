"""
Backups of guests: list those of a target, and end exports of disks that remain.
``salt-run virt.backup`` and ``salt-run virt.backup_restore`` make and restore backups.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings
    from saltvirt.backup.export import request as backup_request
    from saltvirt.backup.model import pages
    from saltvirt.backup.target import receive
    from saltvirt.backup.target import target as backup_target
    from saltvirt.host import connection
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def backup_end(name, ident, good=False, needed=(), **kwargs):
    """
    End the export of a guest's disks for a backup, also if its process has died.

    :param name: name of the guest
    :param ident: name of the backup
    :param good: True: the backup is complete, so its checkpoint is kept
    :param needed: with ``good``: checkpoints to keep; other checkpoints of backups are deleted
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``why`` (reason, if the export had ended before), ``left`` (leftovers
        that could not be removed)

    :raises OperationFailed: libvirt cannot end it

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_end web1 000001-20261123T160000Z-0123abcd
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    request = backup_request.EndRequest(
        values.text(ident, "ident"),
        bool(good),
        tuple(values.list_of(values.text)(needed, "needed")),
    )
    with _connect(kwargs) as conn:
        return api.end(conn, names.existing_guest(name), request).to_answer()


def backup_sweep(**kwargs):
    """
    Clean up exports of processes that died, also for guests that are on another host now, so that
    the space of overwritten blocks is free again. Each backup of a guest of this host does this,
    and ``salt-run virt.backup_due`` does it on all hosts.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: list of guests that had leftovers

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.backup_sweep
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    with _connect(kwargs) as conn:
        return api.sweep(conn)


def backup_list(folder, uuid=None, mounted=False, name=None, newest=False, after=None):
    """
    List the backups in a folder of this machine. An answer is limited to 256 KiB: call it again
    with ``after`` for the rest.

    :param folder: folder of the target
    :param uuid: UUID of a guest; default: all guests
    :param mounted: True: the folder must be a mount point
    :param name: guests that have or had this name, or have it as UUID; and the guest with ``uuid``
    :param newest: True: only the newest and the newest good backup of each guest
    :param after: ``UUID/IDENT``: only backups after that one

    :return: a list of dictionaries, for each guest the oldest first: ``ident``, ``guest``,
        ``uuid``, ``when``, ``age_s`` (by the clock of this machine), ``host``, ``consistency``,
        ``disks`` (disk to ``whole``, or to the backup that it depends on), ``stored_bytes``,
        ``wrong`` (why it is not good, or cannot be read without its key, or null), ``broken`` (disk
        to the error), ``skipped`` (disks that it does not contain)

    :raises InvalidInput: the folder does not exist, or others can write to it

    CLI Example:

    .. code-block:: bash

        salt backup1 virt.backup_list /srv/backup
    """
    target = backup_target.open_target(folder, bool(mounted))
    after_record = None
    if after is not None:
        last, _, ident = values.text(after, "after").partition("/")
        after_record = (last, ident)
    guest_name = None if name is None else names.existing_guest(name)
    records = receive.listing(target, uuid, guest_name, bool(newest), after_record)
    return pages.page(record.to_answer() for record in records)
