"""
Screens and serial ports of guests, wherever they run: docs/reach.md.
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
    A guest's displays and serial ports: what kind each is, where it is on its host, and how to
    reach it from this master. A password is never said.

    :param name: of the guest

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``state``,
        ``displays`` (list of ``type``: ``vnc``, ``spice``, ``serial`` and the like, ``listen``,
        ``port``, ``socket``, ``connect``, ``tunnel``: to be run before ``connect``)

    CLI Example:

    .. code-block:: bash

        salt-run virt.display web1
    """
    with Fleet(__opts__) as fleet:
        return verbs.display(fleet, str(name))


@result.reporting
def screenshot(name, width=480, screen=0):
    """
    A small picture of a running guest's screen.

    :param name: of the guest
    :param width: pixels that it is at most wide
    :param screen: number of the screen

    :return: under the guest's name ``result``, ``comment``, ``host``, ``png``: in base64

    CLI Example:

    .. code-block:: bash

        salt-run virt.screenshot web1 width=1280 --out=json | jq -r .web1.png | base64 -d > web1.png
    """
    with Fleet(__opts__) as fleet:
        return verbs.screenshot(fleet, str(name), width, screen)


@result.reporting
def ticket(name, kind="display", digest=None, screen=0, force=False):
    """
    A ticket for one guest's display or serial port, for one use within 30 seconds, and for whoever
    asks for it: the guest's hypervisor waits for the engine ``virt_reach`` of this master, and that
    for the secret of which the SHA-256 is told here. The page asks for it; docs/reach.md has the
    whole.

    :param name: of the guest
    :param kind: ``display`` or ``serial``
    :param digest: the SHA-256, in 64 hexadecimal digits, of a secret of 32 to 128 letters, digits,
        ``-`` and ``_``. The secret itself is told to nobody but the WebSocket
    :param screen: number of the display
    :param force: take the serial port from whoever has it

    :return: under the guest's name ``result``, ``comment``, ``host``, ``uuid``, ``kind``, ``type``
        (``vnc``, ``spice``, ``pty``), ``seconds``: how long it is good

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
    A ticket to see the cloud as it is and as it changes, for one use within 30 seconds, and for
    whoever asks for it. The page asks for it: the engine ``virt_reach`` of this master then asks
    the hypervisors once for all pages, and tells each what its user may see; see docs/page.md.

    :param digest: the SHA-256, in 64 hexadecimal digits, of a secret of 32 to 128 letters, digits,
        ``-`` and ``_``. The secret itself is told to nobody but the WebSocket

    :return: under ``page`` ``result``, ``comment``, ``seconds``: how long it is good

    CLI Example:

    .. code-block:: bash

        salt-run virt.watch digest="$(printf %s "$SECRET" | sha256sum | cut -c-64)"
    """
    return verbs.watch(__opts__, access_check.requesting_user(__opts__), digest)
