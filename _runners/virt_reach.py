"""
Access displays and serial ports of guests: docs/how-to/reach.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt.console.master import verbs
    from saltvirt.operations.access import access_check

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@result.reporting
def display(name):
    """
    List the displays and serial ports of a guest: type, location on the host, and how to connect
    from this master. Passwords are not shown.

    :param name: name of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``state``,
        ``displays`` (list of ``type``: ``vnc``, ``spice``, ``serial`` and so on, ``listen``,
        ``port``, ``socket``, ``connect``, ``tunnel``: command to run before ``connect``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.display web1
    """
    with Fleet(__opts__) as fleet:
        return verbs.display(fleet, str(name))


@result.reporting
def screenshot(name, width=480, screen=0):
    """
    Take a small screenshot of a running guest.

    :param name: name of the guest
    :param width: maximum width in pixels
    :param screen: number of the screen

    :return: under the guest's name ``result``, ``comment``, ``host``, ``png`` in base64

    CLI Example:

    .. code-block:: bash

        salt-run virt.screenshot web1 width=1280 --out=json | jq -r .web1.png | base64 -d > web1.png
    """
    with Fleet(__opts__) as fleet:
        return verbs.screenshot(fleet, str(name), width, screen)


@result.reporting
def ticket(name, kind="display", digest=None, screen=0, force=False):
    """
    Create a ticket for a guest's display or serial port. It can be used once, within 30 seconds, by
    the user who requested it: the guest's hypervisor waits for the engine ``virt_reach`` of this
    master, and the engine for the secret whose SHA-256 digest is given here. The web page uses it;
    see docs/how-to/reach.md.

    :param name: name of the guest
    :param kind: ``display`` or ``serial``
    :param digest: SHA-256 (64 hexadecimal digits) of a secret of 32 to 128 letters, digits, ``-``
        and ``_``. The secret itself is only sent to the WebSocket
    :param screen: number of the display
    :param force: disconnect the current user of the serial port

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``kind``, ``type``
        (``vnc``, ``spice``, ``pty``), ``seconds`` (validity)

    CLI Example:

    .. code-block:: bash

        salt-run virt.ticket web1 serial digest="$(printf %s "$SECRET" | sha256sum | cut -c-64)"
    """
    user = access_check.requesting_user(__opts__)
    with Fleet(__opts__) as fleet:
        return verbs.ticket(fleet, user, str(name), str(kind), digest, screen=screen, force=force)


@result.reporting
def watch(digest):
    """
    Create a ticket for events of the cloud. It can be used once, within 30 seconds, by the user who
    requested it. The web page uses it: the engine ``virt_reach`` of this master then queries the
    hypervisors once for all pages, and sends each page what its user may see; see page.md.

    :param digest: SHA-256 (64 hexadecimal digits) of a secret of 32 to 128 letters, digits, ``-``
        and ``_``. The secret itself is only sent to the WebSocket

    :return: under ``page`` ``result``, ``comment``, ``seconds`` (validity)

    CLI Example:

    .. code-block:: bash

        salt-run virt.watch digest="$(printf %s "$SECRET" | sha256sum | cut -c-64)"
    """
    return verbs.watch(__opts__, access_check.requesting_user(__opts__), digest)
