"""
Guests that run from a backup while its blocks are pulled in. ``salt-run virt.backup_restore NAME
instant=True`` begins it, ``virt.backup_instant`` sees it through.
"""

import dataclasses
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.host import paths

with saltvirt.later():
    from saltvirt import names, settings, units
    from saltvirt.backup.model import answers as backup_answers
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.pki.host import own_pair

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


_ONE_TIME_KEYS = f"{paths.STATE}/backup-readers"


def backup_standing(name, **kwargs):
    """
    How far a guest is that runs from a backup (``virt.backup_restore`` with ``instant``).

    :param name: the guest's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``state`` (``pulling``; ``cut``: the backup cannot be read; ``off``: the guest
        is; ``whole``: it stands on no backup; ``gone``: there is no such guest), ``ident`` (the
        backup), ``percent``, ``disks`` (disk to its percents), ``paused`` (at a block that could
        not be read), ``why``

    :raises OperationFailed: it is just being made

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_standing web1
    """
    from saltvirt.backup.export import live_restore_build as instants  # noqa: PLC0415 - needs the binding

    locks = guest_lock.folder(__salt__["config.get"])
    with _connect(kwargs) as conn:
        return instants.read_status(conn, names.existing_guest(name), locks).to_answer()


def backup_again(name, shown, reader, bandwidth=None, **kwargs):
    """
    The backup on which a guest stands is shown to this host anew: the guest goes on where it was
    cut off, and its blocks come in again.

    :param name: the guest's name
    :param shown: what ``virt.backup_show`` said
    :param reader: to whom: what ``virt.backup_reader`` with ``once`` said here
    :param bandwidth: so many MiB/s are pulled in at most
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: what ``virt.backup_standing`` returns

    :raises NotFound: the guest stands on no backup here
    :raises BadAnswer: what is shown is another backup
    :raises InvalidInput: the reader is none that was made here, or was used

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_again web1 shown="$SHOWN" reader="$READER"
    """
    from saltvirt.backup.export import live_restore_build as instants  # noqa: PLC0415 - needs the binding
    from saltvirt.backup.export import live_restore_server  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    guest, backup_info = (
        names.existing_guest(name),
        backup_answers.ShownBackup.from_answer(shown, "shown"),
    )
    trusted_info = dataclasses.replace(
        backup_info, authority=own_pair.authority(backup_info.authority, "shown")
    )
    limit = None if bandwidth is None else units.parse_count(bandwidth, "bandwidth")
    with _connect(kwargs) as conn:
        pair = own_pair.take(_ONE_TIME_KEYS, reader, "reader")
        reader_pair = guest, pair.certificate, pair.key
        keeper = live_restore_server.make_request(__salt__["config.get"], kwargs, *reader_pair)
        live_restore = instants.LiveRestoreOptions(next(iter(saltvirt.__path__)), keeper, limit)
        return instants.resume(conn, live_restore, guest, trusted_info).to_answer()
