"""
The ports of a hypervisor: open to the other hypervisors, shut to everybody else.
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
    The names of the other hypervisors, as the master's ``virt:hosts`` and ``virt:pki:names``
    have them: those by which they reach each other.

    :return: list of names

    :raises PkiError: the master does not say

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
    What ``virt.firewall_apply`` would do here; nothing is changed.

    :param hosts: names, addresses or networks of the other hypervisors; default
        ``virt.firewall_hosts``
    :param opened: ports that are open to them alone
    :param shut: ports that are shut for everybody but this machine itself
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default the first of
        these that runs here
    :param agent: port of high availability's agent, which is open to ``masters``, too; default the
        one of its settings where this host has any; 0: none
    :param masters: names, addresses or networks of the masters; default the one of this minion

    :return: ``kind``; ``hosts``: their addresses; ``rules``: in the firewall's own words;
        ``differs``: whether anything would be changed

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_plan
    """
    name, rules = _rules(hosts, opened, shut, kind, agent, masters)
    return {
        "kind": name,
        "hosts": list(rules.hosts),
        "rules": firewall.KINDS[name].wanted(rules),
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
    Opens ports to the other hypervisors and shuts them to everybody else, with the firewall
    that runs here. Rules of others are left as they are.

    :param hosts: names, addresses or networks of the other hypervisors; default
        ``virt.firewall_hosts``
    :param opened: ports that are open to them alone
    :param shut: ports that are shut for everybody but this machine itself
    :param kind: ``firewalld``, ``ufw``, ``iptables`` or ``nftables``; default the first of
        these that runs here
    :param agent: port of high availability's agent, which is open to ``masters``, too; default the
        one of its settings where this host has any; 0: none
    :param masters: names, addresses or networks of the masters; default the one of this minion

    :return: as ``virt.firewall_plan`` afterwards

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_apply hosts='[10.0.0.12, 10.0.0.13]'
    """
    name, rules = _rules(hosts, opened, shut, kind, agent, masters)
    firewall.apply(name, rules)
    return firewall_plan(hosts, opened, shut, kind, agent, masters)


def firewall_remove():
    """
    Takes away the rules that ``virt.firewall_apply`` made.

    :return: True if there were any

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.firewall_remove
    """
    return firewall.remove()


def firewall_made():
    """
    Are there rules that ``virt.firewall_apply`` made?

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
    """Where this minion finds its master, or all that it may turn to."""
    masters = (
        __opts__.get("master_list") or __opts__.get("master_ip") or __opts__.get("master") or ()
    )
    return [masters] if isinstance(masters, str) else list(masters)


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
