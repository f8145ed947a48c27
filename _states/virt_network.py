"""
Virtual networks of a hypervisor as states.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import networks, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def network_defined(
    name,
    bridge=None,
    forward=None,
    vport=None,
    tag=None,
    ipv4_config=None,
    ipv6_config=None,
    autostart=True,
    connection=None,
    username=None,
    password=None,
    mtu=None,
    domain=None,
    nat=None,
    interfaces=None,
    addresses=None,
    physical_function=None,
    dns=None,
    bandwidth=None,
    portgroups=None,
    dev=None,
    stp=None,
    delay=None,
    isolated_ports=None,
    **kwargs,
):
    """
    Define a virtual network, whether it runs or not.

    A network that runs takes at once what libvirt can change then: DHCP ranges and hosts,
    DNS records, port groups, interfaces. The rest holds when it is started again, and the
    comment says so.

    :param name: of the network
    :param bridge: given where libvirt shall not choose the name, or where it is the host's
    :param forward: ``nat``, ``route``, ``open``, ``bridge``, ``private``, ``vepa``,
        ``passthrough``, ``hostdev``; without it the network is isolated
    :param vport: see ``virt.network_define``, as for all that is not explained here
    :param tag: VLAN tag
    :param ipv4_config: a dict: ``cidr``, ``dhcp_ranges`` (``start``, ``end``), ``hosts``
        (``ip``, ``mac``, ``name``), ``bootp`` (``file``, ``server``), ``tftp``
    :param ipv6_config: likewise
    :param autostart: whether it is started with the host
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``
    :param mtu: bytes in a packet
    :param domain: DNS domain of the guests: a name, or a dict with ``name``, ``localOnly``
    :param nat: a dict with ``address`` and ``port``, each with ``start`` and ``end``
    :param interfaces: host interfaces to use
    :param addresses: PCI addresses, with ``hostdev``
    :param physical_function: the card whose virtual functions to use
    :param dns: a dict: ``forwarders``, ``txt``, ``hosts``, ``srvs``
    :param bandwidth: a dict with ``inbound`` and ``outbound``
    :param portgroups: a list of dicts; when it is not given, those that are there stay
    :param dev: the only host interface that traffic may leave by
    :param stp: spanning tree on the bridge; when it is not given it stays as it is
    :param delay: seconds until the bridge forwards; likewise
    :param isolated_ports: keep guests of the network from each other

    :return: ``changes`` has ``old`` and ``new`` of each thing that differs. With ``test=True`` the
        same, and nothing is written. An error, or a parameter that there is not, makes
        ``result`` False and is named in the comment.

    .. code-block:: yaml

        lab:
          virt.network_defined:
            - forward: nat
            - ipv4_config:
                cidr: 192.168.124.0/24
                dhcp_ranges:
                  - start: 192.168.124.10
                    end: 192.168.124.99

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_defined main bridge=br0 forward=bridge
    """
    return result.run(
        "virt.network_defined", locals(), __salt__, __opts__["test"], networks.defined
    )


def network_running(
    name,
    bridge=None,
    forward=None,
    vport=None,
    tag=None,
    ipv4_config=None,
    ipv6_config=None,
    autostart=True,
    connection=None,
    username=None,
    password=None,
    mtu=None,
    domain=None,
    nat=None,
    interfaces=None,
    addresses=None,
    physical_function=None,
    dns=None,
    bandwidth=None,
    portgroups=None,
    dev=None,
    stp=None,
    delay=None,
    isolated_ports=None,
    restart=False,
    **kwargs,
):
    """
    Define a virtual network and have it run.

    The parameters are those of :func:`network_defined`. What libvirt cannot change while the
    network runs takes effect by starting it again, at once when no running guest is on it.
    When guests are on it they are named in the comment and nothing is cut, unless ``restart``.

    :param restart: start it again although guests are on it; they are connected to its bridge
        again. Until such a guest is stopped and started libvirt lists no port of it, and what it
        keeps by port does not hold: a minimum of bandwidth (``floor``) and port isolation

    .. code-block:: yaml

        main:
          virt.network_running:
            - bridge: br0
            - forward: bridge

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_running main bridge=br0 forward=bridge
    """
    return result.run(
        "virt.network_running", locals(), __salt__, __opts__["test"], networks.running
    )


def network_absent(name, force=False, connection=None, username=None, password=None, **kwargs):
    """
    Stop a virtual network and remove its definition.

    :param name: of the network
    :param force: also when running guests are on it: they lose its connection
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: to connect with, overriding ``virt:connection:auth:username``
    :param password: to connect with, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``active`` and ``defined``. When running guests are on it and
        ``force`` is not set, ``result`` is False and the comment names them.

    .. code-block:: yaml

        lab:
          virt.network_absent

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_absent lab test=True
    """
    return result.run("virt.network_absent", locals(), __salt__, __opts__["test"], networks.absent)
