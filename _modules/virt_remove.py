"""
Removing guests of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import settings  # noqa: E402
from saltvirt.host import admit, connection, domain, remove  # noqa: E402
from saltvirt.host import purge as purging  # noqa: E402
from saltvirt.spec import values  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _gate():
    return admit.Gate.configured(__salt__["config.get"])


def undefine(vm_, **kwargs):
    """
    Remove the definition of a stopped domain, and its NVRAM. Its disks stay.

    libvirt refuses while there is saved memory or a snapshot of it; ``virt.purge`` removes
    those too.

    :param vm_: name of the domain
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: True, after libvirt no longer lists it

    :raises OperationFailed: it runs, or libvirt refused; the message has its words

    CLI Example:

    .. code-block:: bash

        salt '*' virt.undefine <domain>
    """
    gate = _gate()
    with gate.guest("virt.undefine", vm_), _connect(kwargs) as conn:
        return remove.undefine(conn, domain.lookup(conn, vm_))


def purge(vm_, dirs=False, removables=False, disks="own", test=False, **kwargs):
    """
    Remove a guest and its own disks, and nothing else.

    Of a guest that ``virt.init`` made, its own disks are those that its record names, and
    the files of its snapshots. Of any other domain they are its writable disks. What another
    domain uses or stands on, the medium of a drive, a shared or read-only disk, an image of
    the cache and a block device outside of libvirt's pools are never deleted. Saved memory,
    snapshots, NVRAM and TPM state go with the guest. After a failure it can be called again.

    :param vm_: name of the domain
    :param dirs: also remove the folders below ``virt:images`` that are empty afterwards.
        Folders that hold anything are never removed
    :param removables: accepted as by Salt 3007; media are never deleted, as other guests may
        use them tomorrow
    :param disks: ``own``, as above; ``made``: only those that a record of ours names, so of any
        other domain none; ``none``
    :param test: only say what would be deleted
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: True, after the disks are gone and libvirt no longer lists the domain; with ``test``
        a dict: ``delete`` (paths) and ``keep`` (path to the reason)

    :raises NotFound: there is no such domain
    :raises OperationFailed: a disk could not be deleted; the domain is then still defined

    CLI Example:

    .. code-block:: bash

        salt '*' virt.purge <domain>
        salt '*' virt.purge <domain> test=True
    """
    disks = values.choice("own", "made", "none")(disks, "disks")
    gate = _gate()
    with _connect(kwargs) as conn:
        if test:
            todo = purging.plan(conn, domain.lookup(conn, vm_), gate.cache_dir, disks)
            return {"delete": todo.delete, "keep": todo.keep}
        purging.not_at_work(domain.lookup(conn, vm_))  # said at once
        with gate.guest("virt.purge", vm_):
            purging.purge(conn, vm_, gate.cache_dir, gate.images_dir, dirs, disks)
    return True
