"""
The engine of high availability on the master: it hears the agents of the hypervisors, decides,
fences hosts that are gone and has their guests started elsewhere. See docs/ha.md.

In the master's configuration, beside ``virt:ha``:

.. code-block:: yaml

    engines:
      - virt_ha

What it decided, and why, is in ``salt-run virt.ha_status``, in the journal and on the bus, as
``salt/virt/ha/host/NAME``, ``salt/virt/ha/guest/NAME`` and ``salt/virt/ha/fence/NAME``.
"""

import logging
import threading
import time
from typing import TYPE_CHECKING

import salt.utils.event

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors
from saltvirt.ha.manager import serve

if TYPE_CHECKING:
    from salt_dunders import __opts__

log = logging.getLogger(__name__)

__virtualname__ = "virt_ha"

# Salt begins an engine that ended again, at once
_PAUSE_S = 10


def __virtual__():
    return __virtualname__


def start():
    """
    Runs until the master ends it.
    """
    try:
        if __opts__.get("__role") != "master":
            raise errors.InvalidInput("the engine virt_ha is for a master, not for a minion")
        bus = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
        serve.serve(dict(__opts__), lambda tag, data: bus.fire_event(data, tag), threading.Event())
    except errors.VirtError as exc:
        log.critical("high availability does not run: %s", exc.text)
        time.sleep(_PAUSE_S)
