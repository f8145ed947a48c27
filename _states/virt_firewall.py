"""
States for the firewall of a hypervisor.
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
    Ensure that ports are open for the other hypervisors and closed for everybody else, with the
    host's active firewall. Rules of others are not changed.

    :param name: name of the state; not used otherwise
    :param hosts: names, addresses or networks of the other hypervisors; default: the hosts of the
        master's ``virt:hosts``
    :param opened: ports and ranges that are open only for these hosts
    :param shut: ports and ranges that only this host itself can reach
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default: the first of these
        that is active
    :param agent: port of the high availability agent, which is open for the ``masters``, too;
        default: the port in the agent's settings, if the host has any; 0: none
    :param masters: names, addresses or networks of the masters; default: the master of this minion

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall name=ports
    """
    return result.run("virt.firewall", locals(), __salt__, __opts__["test"], firewalls.applied)


def firewall_absent(name, **kwargs):
    """
    Ensure that the rules of ``virt.firewall`` do not exist.

    :param name: name of the state; not used otherwise

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall_absent name=ports
    """
    return result.run(
        "virt.firewall_absent", locals(), __salt__, __opts__["test"], firewalls.absent
    )
