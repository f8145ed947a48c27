"""
Engine of high availability on the master: it receives the heartbeats of the hypervisors' agents,
fences failed hosts and starts their guests elsewhere. See docs/how-to/ha.md.

Configuration of the master, in addition to ``virt:ha``:

.. code-block:: yaml

    engines:
      - virt_ha

Its decisions, with the reasons, are shown by ``salt-run virt.ha_status``, stored in the journal,
and sent to the event bus as ``salt/virt/ha/host/NAME``, ``salt/virt/ha/guest/NAME`` and
``salt/virt/ha/fence/NAME``.
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

# Salt restarts an engine immediately when it exits
_PAUSE_S = 10


def __virtual__():
    return __virtualname__


def start():
    """
    Run until the master stops the engine.
    """
    try:
        if __opts__.get("__role") != "master":
            raise errors.InvalidInput("the engine virt_ha is for a master, not for a minion")
        bus = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
        serve.serve(dict(__opts__), lambda tag, data: bus.fire_event(data, tag), threading.Event())
    except errors.VirtError as exc:
        log.critical("high availability does not run: %s", exc.text)
        time.sleep(_PAUSE_S)
