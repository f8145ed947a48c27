"""
Backup schedules of guests.
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
    Set the backup schedule of a guest, which ``virt.backup_due`` of the master follows. ``backup``
    of ``virt.deployed`` sets it.

    :param name: name of the guest
    :param wish: ``no``, ``yes``, or ``hours=NUMBER`` and ``to=TARGET``, separated by spaces
    :param test: True: nothing is written
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the previous schedule, or None

    :raises NotFound: the guest does not exist
    :raises Unsupported: the guest was not created by Salt Virt

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
