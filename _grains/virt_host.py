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
"""

import os

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.host import presence  # noqa: E402


def virt_host():
    """The grain, see above; on systems without libvirt ``hypervisor`` is False."""
    return {"virt_host": presence.detect(os.uname().machine)}
