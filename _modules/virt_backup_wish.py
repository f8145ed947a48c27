"""
What a guest says of its backups.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings
    from saltvirt.host import connection
    from saltvirt.host.domain import guest_lock
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def backup_wish(name, wish, test=False, **kwargs):
    """
    A guest says from now on how it is to be backed up; ``virt.backup_due`` of the master goes by
    it. ``backup`` of ``virt.deployed`` sets it.

    :param name: the guest's name
    :param wish: ``no``, ``yes``, or words of ``hours=NUMBER`` and ``to=TARGET``
    :param test: True: nothing is written
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: what it said before, or None

    :raises NotFound: no such guest
    :raises Unsupported: Salt Virt has not made it

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.backup_wish web1 'hours=24 to=vault'
    """
    from saltvirt.backup.export import guest_schedule  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    guest, text = names.existing_guest(name), values.text(wish, "wish")
    lock_dir = guest_lock.folder(__salt__["config.get"])
    with guest_lock.acquire(lock_dir, "virt.backup_wish", guest), _connect(kwargs) as conn:
        return guest_schedule.set_schedule(conn, guest, text, bool(test))
