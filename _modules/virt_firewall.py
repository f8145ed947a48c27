"""
Manage the firewall of a hypervisor: open ports for the other hypervisors, and close them for
everybody else.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt.fleet.minion import client
    from saltvirt.ha.agent import install
    from saltvirt.hostnet.firewall import firewall
    from saltvirt.pki.host import request

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def firewall_hosts():
    """
    List the names of the other hypervisors, from the master's ``virt:hosts`` and
    ``virt:pki:names``, by which they reach each other.

    :return: list of names

    :raises PkiError: the master does not answer

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_hosts
    """
    host_names = request.hosts(_pillar_ext)
    host_names.pop(__opts__["id"], None)
    return [names[0] for names in host_names.values()]


def firewall_plan(
    hosts=None,
    opened=("16514", "49152-49215"),
    shut=("5900-6155",),
    kind=None,
    agent=None,
    masters=None,
):
    """
    Show what ``virt.firewall_apply`` would do. Nothing is changed.

    :param hosts: names, addresses or networks of the other hypervisors; default: the hosts of the
        master's ``virt:hosts``
    :param opened: ports that are open only for these hosts
    :param shut: ports that only this host itself can reach
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default: the first of these
        that is active
    :param agent: port of the high availability agent, which is open for the ``masters``, too;
        default: the port in the agent's settings, if the host has any; 0: none
    :param masters: names, addresses or networks of the masters; default: the master of this minion

    :return: ``kind``; ``hosts``: their addresses; ``rules``, in the firewall's own syntax;
        ``differs``: whether anything would be changed

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_plan
    """
    name, rules = _rules(hosts, opened, shut, kind, agent, masters)
    return {
        "kind": name,
        "hosts": list(rules.hosts),
        "rules": firewall.KINDS[name].expected_rules(rules),
        "differs": firewall.differs(name, rules),
    }


def firewall_apply(
    hosts=None,
    opened=("16514", "49152-49215"),
    shut=("5900-6155",),
    kind=None,
    agent=None,
    masters=None,
):
    """
    Open ports for the other hypervisors and close them for everybody else, with the host's active
    firewall. Rules of others are not changed.

    :param hosts: names, addresses or networks of the other hypervisors; default: the hosts of the
        master's ``virt:hosts``
    :param opened: ports that are open only for these hosts
    :param shut: ports that only this host itself can reach
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default: the first of these
        that is active
    :param agent: port of the high availability agent, which is open for the ``masters``, too;
        default: the port in the agent's settings, if the host has any; 0: none
    :param masters: names, addresses or networks of the masters; default: the master of this minion

    :return: as ``virt.firewall_plan``, after the change

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_apply hosts='[10.0.0.12, 10.0.0.13]'
    """
    name, rules = _rules(hosts, opened, shut, kind, agent, masters)
    firewall.apply(name, rules)
    return firewall_plan(hosts, opened, shut, kind, agent, masters)


def firewall_remove():
    """
    Remove the rules of ``virt.firewall_apply``.

    :return: True if there were any

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_remove
    """
    return firewall.remove()


def firewall_made():
    """
    Check whether rules of ``virt.firewall_apply`` exist.

    :return: True or False

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_made
    """
    return firewall.has_rules()


def _rules(hosts, opened, shut, kind, agent, masters):
    hosts = firewall_hosts() if hosts is None else hosts
    agent = install.port() if agent is None else agent
    masters = _masters() if masters is None else masters
    return firewall.kind(kind), firewall.rules(hosts, opened, shut, agent, masters)


def _masters():
    """The addresses of this minion's master or masters."""
    masters = (
        __opts__.get("master_list") or __opts__.get("master_ip") or __opts__.get("master") or ()
    )
    return [masters] if isinstance(masters, str) else list(masters)


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
