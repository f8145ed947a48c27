"""
What the runner's ``virt.repair`` asks of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

import saltvirt

saltvirt = saltvirt.fresh()

from dataclasses import asdict

from saltvirt import errors, settings
from saltvirt.host import connection
from saltvirt.host.domain import guest_lock
from saltvirt.host.provision import leftovers as left
from saltvirt.host.provision import making

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
        (``NAME@HOST`` of what a host that did not answer may hold for a guest), ``leavings``
        (guests of whose undone migrations to this host something is still here), ``at_work``
        (guest to the operation that is at work on it, its process and since when),
        ``operations`` (guest to the mark of the ``salt-run virt.init`` that made it) and ``made``
        (guest to what an operation that died has left of disks that it made for it: ``what`` the
        operation was, ``disks`` that can go, and ``unsure``, path to why it stays)

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.leftovers
    """
    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        return left.read(conn, guest_lock.folder(__salt__["config.get"]))


def remove_made(vm_, test=False, unused=(), **kwargs):
    """
    Remove the disks that an operation which died has made for a guest and not given to it.

    Only what is proven to be made by it, and used by nobody. What other hosts may have, too, stays:
    ``salt-run virt.repair`` asks them. The rest is named and stays.

    :param vm_: name of the guest, which need not be there any more
    :param test: only say what would be deleted
    :param unused: paths on storage that other hosts may have, of which the caller knows from all
        of them that nobody there uses them; the runner asks by ``virt.storage_users``
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: True, when nothing of it is left; with ``test`` a dict: ``delete`` (paths), ``keep``
        (path to the reason) and where there are any ``shared`` (what to ask other hosts about)

    :raises OperationFailed: something stays; the message says what, and why

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.remove_made web1 test=True
    """
    if not isinstance(unused, (list, tuple)) or not all(isinstance(one, str) for one in unused):
        raise errors.InvalidInput(f"unused {unused!r} is not a list of paths")
    where = guest_lock.folder(__salt__["config.get"])
    with connection.connect(settings.connection(__salt__["config.get"], kwargs)) as conn:
        if test:
            todo = making.look(conn, str(vm_), unused)
            places = {path: asdict(place) for path, place in todo.shared.items()}
            more = {"shared": places} if places else {}
            return {"delete": sorted([*todo.delete, *todo.second]), "keep": todo.keep, **more}
        with guest_lock.held(where, "virt.remove_made", vm_):
            left = making.remove(conn, str(vm_), unused)
    if left.keep:
        stay = "; ".join(f"{path} stays: {why}" for path, why in left.keep.items())
        raise errors.OperationFailed(stay)
    return True
