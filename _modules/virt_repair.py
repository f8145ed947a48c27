"""
What the runner's ``virt.repair`` asks of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import settings
from saltvirt.host import connection
from saltvirt.host.domain import guest_lock
from saltvirt.host.provision import leftovers as left

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def leftovers(**kwargs):
    """
    What interrupted operations have left on this host. Changes nothing.

    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: a dict: ``guests`` (name to state), ``unfinished`` (names of guests that an init
        which died has half made), ``migrations`` (as ``virt.migrate_unfinished``), ``left``
        (``NAME@HOST`` of what a host that did not answer may hold for a guest), ``at_work``
        (guest to the operation that is at work on it, its process and since when) and
        ``operations`` (guest to the mark of the ``salt-run virt.init`` that made it)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.leftovers
    """
    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        return left.read(conn, guest_lock.folder(__salt__["config.get"]))
