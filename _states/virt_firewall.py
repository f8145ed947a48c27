"""
The ports of a hypervisor, as states.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import firewalls, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def firewall(
    name,
    hosts=None,
    opened=("16514", "49152-49215"),
    shut=("5900-6155",),
    kind=None,
    agent=None,
    masters=None,
    **kwargs,
):
    """
    Ports are open to the other hypervisors and shut to everybody else, with the firewall that
    runs here. Rules of others are left as they are.

    :param name: of the state; nothing else is made of it
    :param hosts: names, addresses or networks of the other hypervisors; default: those that the
        master names in ``virt:hosts``
    :param opened: ports and ranges that are open to them alone
    :param shut: ports and ranges that are shut for everybody but this machine itself
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default: the first of these
        that runs here
    :param agent: port of high availability's agent, which is open to ``masters``, too; default:
        the one of its settings where this host has any; 0: none
    :param masters: names, addresses or networks of the masters; default: the one of this minion

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall name=ports
    """
    return result.run("virt.firewall", locals(), __salt__, __opts__["test"], firewalls.applied)


def firewall_absent(name, **kwargs):
    """
    The rules that ``virt.firewall`` made are gone.

    :param name: of the state; nothing else is made of it

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall_absent name=ports
    """
    return result.run(
        "virt.firewall_absent", locals(), __salt__, __opts__["test"], firewalls.absent
    )
