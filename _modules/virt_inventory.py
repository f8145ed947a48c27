"""
What the runner's placement asks of a hypervisor.

:depends: libvirt-python in Salt's own Python
"""

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import settings  # noqa: E402
from saltvirt.host import connection  # noqa: E402
from saltvirt.host import inventory as host_inventory  # noqa: E402
from saltvirt.host import maintenance as mark  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def inventory(**kwargs):
    """
    The host's size, its guests' sizes, and what a guest may need of it.

    One round of bulk reads; no disk is opened and no process started.

    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: a dict: ``cpus`` (threads), ``memory_kib``, ``arch``, ``types`` (libvirt's domain
        types), ``guests`` (name to ``uuid``, ``state``, ``vcpus``, ``memory_kib``,
        ``autostart``, ``groups``), ``arriving`` (the same of guests that are being moved
        here), ``images_folder`` (``path``, ``total_bytes``,
        ``free_bytes``, ``promised_bytes``: what thin disks may still grow), ``bridges``,
        ``networks`` and ``pools`` (active ones), ``labels``, ``ratios``, ``maintenance`` (the
        reason, or None), ``libvirt`` (version as libvirt's number)

    :raises ConnectionFailed: no libvirt answers

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.inventory
    """
    config_get = __salt__["config.get"]
    folder = settings.option(config_get, "images", settings.IMAGES_FOLDER)
    with connection.connect(settings.connection(config_get, kwargs)) as conn:
        return host_inventory.read(conn, config_get, folder)


def maintenance(reason=None, guests=None, off=False):
    """
    Read, set or clear the mark that keeps new guests away from this host.

    :param reason: sets the mark, with these words for who asks why
    :param guests: list of the names that were moved away, for ``virt.restore`` of the runner
    :param off: clears the mark

    :return: the mark as it is now: a dict of ``reason`` and ``guests``, or None

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.maintenance 'new disks'
        salt hyper1 virt.maintenance off=True
    """
    if off:
        mark.clear()
    elif reason:
        mark.write(reason, guests or ())
    return mark.read()
