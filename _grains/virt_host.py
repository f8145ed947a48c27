"""
The grain ``virt_host``: is this minion a hypervisor, and of what kind.

.. code-block:: yaml

    virt_host:
      hypervisor: True        # libvirt is here and can run guests
      type: kvm               # kvm, qemu (no /dev/kvm), xen, bhyve, lxc; or None
      daemons: [libvirtd]     # those that run or wait on their socket
      kvm: True               # /dev/kvm is there
      arch: x86_64

It looks at files only: no daemon is asked, so it cannot hang. The runner's hypervisors
are by default the minions where ``virt_host:hypervisor`` is True.

On a hypervisor the minion imports the library when it asks for the grain, so that its jobs,
which are forks of it, begin sooner.
"""

import logging
import os
import sys
from typing import TYPE_CHECKING

import saltvirt

if not hasattr(saltvirt, "fresh"):
    # a sync has brought a part of it: what the minion holds all its jobs would have
    del sys.modules["saltvirt"]
    raise ImportError("the library of Salt Virt is incomplete here: run saltutil.sync_all again")
saltvirt = saltvirt.fresh()

from saltvirt.host.node import detect

if TYPE_CHECKING:
    from salt_dunders import __opts__

log = logging.getLogger(__name__)


def virt_host():
    """The grain, see above; on systems without libvirt ``hypervisor`` is False."""
    host_grain = detect.detect(os.uname().machine)
    # not in salt-call, which has one job and needs a few parts only
    if host_grain["hypervisor"] and __opts__.get("__cli") == "salt-minion":
        _preload()
    return {"virt_host": host_grain}


def _preload():
    try:
        saltvirt.preload()
    except Exception:  # a file that a sync is just writing; the grain is what matters here
        log.info("the library of Salt Virt was not imported ahead of jobs", exc_info=True)
