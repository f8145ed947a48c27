"""
Getting to a guest: its screen, its serial port, its addresses.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import settings
from saltvirt.host import connection
from saltvirt.host.domain import addresses, lookup
from saltvirt.host.domain import console as consoles  # the name is a function's here
from saltvirt.host.domain import screenshot as pictures
from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

SCREENSHOTS = "/var/cache/salt-virt/screenshots"

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def console(vm_, **kwargs):
    """
    Where a guest's displays and serial ports are, and the commands that reach them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``name``, ``host``, ``state``, ``graphics`` (list of ``type``, ``listen``,
        ``port``, ``connect``, and ``tunnel``: the ssh command to run first when the display
        listens on the host itself only) and ``serials`` (list of ``type``, ``port``, ``path``,
        ``connect``). A stopped guest has no ports yet

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt '*' virt.console <domain>
    """
    with _connect(kwargs) as conn:
        return consoles.console(conn, vm_)


def guest_addresses(vm_=None, **kwargs):
    """
    The IP addresses of one guest, or of all that run.

    Whoever knows is believed, in this order: the DHCP server of libvirt's networks, the
    guest's agent if it is connected, the host's ARP table. Nobody is waited for longer than
    two seconds.

    :param vm_: name of one domain; without it, all active domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to a dict of MAC address to ``interface``, ``source``
        (``lease``, ``agent``, ``arp``) and ``addresses`` (list of ``address``, ``prefix``,
        ``type``); empty when nobody knows

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt '*' virt.guest_addresses <domain>
    """
    with _connect(kwargs) as conn:
        return addresses.addresses(conn, vm_)


def screenshot(vm_, path=None, screen=0, **kwargs):
    """
    Take a picture of a running guest's screen.

    :param vm_: name of the domain
    :param path: absolute path of the PNG on this host; default: a new file in
        ``virt:screenshots`` (``/var/cache/salt-virt/screenshots``), readable by root only
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the path of the PNG

    :raises OperationFailed: the guest does not run, has no screen, or the file cannot be written

    CLI Example:

    .. code-block:: bash

        salt '*' virt.screenshot <domain>
    """
    folder = settings.folder(__salt__["config.get"], "screenshots", SCREENSHOTS)
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        data = pictures.take(conn, lookup.lookup(conn, vm_), number)
    return pictures.save(data, vm_, folder, path)
