"""
The bridge of a host that guests are connected to, as states.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import bridges, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def bridge(name, interface=None, timeout_s=60, vlan=None, type="linux", force=False, **kwargs):
    """
    There is a bridge of that name. Where there is none it is made over the host's own
    address, with a way back: see ``virt.bridge_create``. One that is there is left as it is.

    :param name: of the bridge
    :param interface: default: the one with the default route, else the only one with an address
    :param timeout_s: seconds that the host may take to reach its master again, else all is put back
    :param vlan: the number of a VLAN of the interface, 1 to 4094: the bridge is over that, and the
        addresses stay where they are. Default: over the interface itself
    :param type: ``linux``, or ``ovs``: a bridge of Open vSwitch. Its ``interface`` is one without
        an address, by default none
    :param force: make it also while high availability has guests on this host

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge name=br0
        salt hv1 state.single virt.bridge name=br100 interface=eth0 vlan=100
    """
    return result.run("virt.bridge", locals(), __salt__, __opts__["test"], bridges.present)


def bridge_absent(name, timeout_s=60, force=False, **kwargs):
    """
    The bridge that ``virt.bridge`` made is gone, and the host's address where it was. One
    that was made otherwise is left as it is.

    :param name: of the bridge
    :param timeout_s: seconds that the host may take to reach its master again, else the bridge is
        put back
    :param force: remove it also while high availability has guests on this host

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge_absent name=br0
    """
    return result.run("virt.bridge_absent", locals(), __salt__, __opts__["test"], bridges.absent)
