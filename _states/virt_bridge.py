"""
States for the bridge of a hypervisor.
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
    Ensure that a bridge exists. A missing bridge is created below the host's own address, with
    automatic rollback: see ``virt.bridge_create``. An existing bridge is not changed.

    :param name: name of the bridge
    :param interface: interface of the bridge; default: the one with the default route, or the only
        one with an address
    :param timeout_s: timeout in seconds for reaching the master again; then the change is rolled
        back
    :param vlan: VLAN id of the interface, 1 to 4094. The bridge is created on the VLAN, and the
        addresses of the interface are left unchanged. Default: the interface itself
    :param type: ``linux`` or ``ovs`` (Open vSwitch). The ``interface`` of an Open vSwitch bridge
        must have no address; default: none
    :param force: create the bridge even if high availability has guests on this host

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge name=br0
        salt hv1 state.single virt.bridge name=br100 interface=eth0 vlan=100
    """
    return result.run("virt.bridge", locals(), __salt__, __opts__["test"], bridges.present)


def bridge_absent(name, timeout_s=60, force=False, **kwargs):
    """
    Ensure that a bridge that ``virt.bridge`` created does not exist, and that its address is on the
    interface again. Other bridges are not changed.

    :param name: name of the bridge
    :param timeout_s: timeout in seconds for reaching the master again; then the bridge is restored
    :param force: remove the bridge even if high availability has guests on this host

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge_absent name=br0
    """
    return result.run("virt.bridge_absent", locals(), __salt__, __opts__["test"], bridges.absent)
