"""
Grain ``virt_host``: whether this minion is a hypervisor, and of which kind.

.. code-block:: yaml

    virt_host:
      hypervisor: True        # libvirt is here and can run guests
      type: kvm               # kvm, qemu (no /dev/kvm), xen, bhyve, lxc; or None
      daemons: [libvirtd]     # those that run or wait on their socket
      kvm: True               # /dev/kvm is there
      arch: x86_64

It only reads files: no daemon is queried, so it cannot hang. By default, the runner's hypervisors
are the minions where ``virt_host:hypervisor`` is True.

On a hypervisor, the minion imports the library together with the grain, so that its jobs, which are
forks of it, start faster.
"""

import logging
import os
import sys
from typing import TYPE_CHECKING

import saltvirt

if not hasattr(saltvirt, "fresh"):
    # a sync is incomplete: all jobs of the minion would inherit what it imports
    del sys.modules["saltvirt"]
    raise ImportError("the library of Salt Virt is incomplete here: run saltutil.sync_all again")
saltvirt = saltvirt.fresh()

from saltvirt.host.node import detect

if TYPE_CHECKING:
    from salt_dunders import __opts__

log = logging.getLogger(__name__)


def virt_host():
    """Return the grain; on systems without libvirt, ``hypervisor`` is False."""
    host_grain = detect.detect(os.uname().machine)
    # not in salt-call, which runs a single job and needs few modules
    if host_grain["hypervisor"] and __opts__.get("__cli") == "salt-minion":
        _preload()
    return {"virt_host": host_grain}


def _preload():
    try:
        saltvirt.preload()
    except Exception:  # a sync is writing the file; the grain must work nevertheless
        log.info("the library of Salt Virt could not be preloaded", exc_info=True)
