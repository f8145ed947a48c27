"""
Engine that connects browsers to displays and serial ports of guests, and sends events of the cloud
to web pages: a WebSocket on the master, for users with a ticket of ``salt-run virt.ticket`` or
``virt.watch``. See docs/how-to/consoles.md and docs/how-to/web.md.

Configuration of a master:

.. code-block:: yaml

    engines:
      - virt_reach

With options:

.. code-block:: yaml

    engines:
      - virt_reach:
          address: 127.0.0.1   # default: only the server with salt-api's TLS has to connect
          port: 8003           # default
          origins:             # of pages that may connect; default: those of the address that the
            - https://master.example.com:8000     # browser has requested

The engine runs in a process of its own. It listens without TLS: never expose the port to others.
"""

import logging
import time
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors

if TYPE_CHECKING:
    from salt_dunders import __opts__

log = logging.getLogger(__name__)

__virtualname__ = "virt_reach"

# Salt restarts an engine immediately when it exits
_PAUSE_S = 10


def __virtual__():
    return __virtualname__


def start(address="127.0.0.1", port=8003, origins=None):
    """
    Serve consoles and events until the engine is stopped.

    :param address: IP address to listen on
    :param port: TCP port
    :param origins: list of origins of pages that may connect, such as
        ``https://master.example.com:8000``; default: origins whose host and port are those of the
        browser's request
    """
    from saltvirt.operations.cluster import hooks  # noqa: PLC0415 - a minion has none of it
    from saltvirt.web import serve  # noqa: PLC0415

    opts = dict(__opts__)
    try:
        if __opts__.get("__role") != "master":
            raise errors.InvalidInput("the engine virt_reach is for a master, not for a minion")
        serve.run(opts, address, port, origins, lambda: bool(hooks.idle_reason(opts)))
    except errors.VirtError as exc:
        log.error("%s", exc.text)
        time.sleep(_PAUSE_S)
