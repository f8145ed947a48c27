"""
States for the virtual networks of a hypervisor, its bridge, its firewall and its certificates.

:depends: libvirt-python in Salt's own Python, for virtual networks
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import bridges, certificates, firewalls, networks, result

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
    Ensure that a virtual network is defined, active or not.

    DHCP ranges and hosts, DNS records, port groups and interfaces of an active network change
    immediately. All other changes take effect when the network is started again, and the comment
    says so.

    :param name: name of the network
    :param bridge: name of the bridge; by default, libvirt chooses one. Required if it is a bridge
        of the host
    :param forward: ``nat``, ``route``, ``open``, ``bridge``, ``private``, ``vepa``,
        ``passthrough``, ``hostdev``; without it the network is isolated
    :param vport: see ``virt.network_define``, also for the other parameters
    :param tag: VLAN tag
    :param ipv4_config: dictionary: ``cidr``, ``dhcp_ranges`` (``start``, ``end``), ``hosts``
        (``ip``, ``mac``, ``name``), ``bootp`` (``file``, ``server``), ``tftp``
    :param ipv6_config: as ``ipv4_config``
    :param autostart: whether it starts with the host
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``
    :param mtu: MTU in bytes
    :param domain: DNS domain of the guests: a name, or a dictionary with ``name`` and ``localOnly``
    :param nat: dictionary with ``address`` and ``port``, each with ``start`` and ``end``
    :param interfaces: host interfaces to use
    :param addresses: PCI addresses, with ``hostdev``
    :param physical_function: network card whose virtual functions are used
    :param dns: dictionary: ``forwarders``, ``txt``, ``hosts``, ``srvs``
    :param bandwidth: dictionary with ``inbound`` and ``outbound``, each with ``average`` and
        ``peak`` in KiB/s and ``burst`` in KiB
    :param portgroups: list of dictionaries; by default, port groups are left unchanged
    :param dev: host interface to which outgoing traffic is restricted
    :param stp: spanning tree protocol of the bridge; by default, left unchanged
    :param delay: forward delay of the bridge in seconds; by default, left unchanged
    :param isolated_ports: isolate the guests of the network from each other

    :return: ``changes`` has ``old`` and ``new`` of each difference. With ``test=True`` nothing is
        written. If an error occurs or a parameter is unknown, ``result`` is False and the comment
        has the reason.

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
    Ensure that a virtual network is defined and active.

    The parameters are those of :func:`network_defined`. Changes that libvirt cannot make while the
    network is active take effect by a restart of the network, immediately if no running guest uses
    it. If guests use it, the comment lists them and the network is not restarted, unless
    ``restart`` is given.

    :param restart: restart the network even if guests use it, and reconnect them to its bridge.
        Until such a guest is stopped and started, libvirt lists no port for it, and settings of the
        port do not apply: guaranteed bandwidth (``floor``) and port isolation

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
    Ensure that a virtual network is stopped and undefined.

    :param name: name of the network
    :param force: remove the network even if running guests use it; they lose their connection
    :param connection: libvirt URI, overriding ``virt:connection:uri``
    :param username: user name, overriding ``virt:connection:auth:username``
    :param password: password, overriding ``virt:connection:auth:password``

    :return: ``changes`` has ``active`` and ``defined``. If running guests use the network and
        ``force`` is not given, ``result`` is False and the comment lists them.

    .. code-block:: yaml

        lab:
          virt.network_absent

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_absent lab test=True
    """
    return result.run("virt.network_absent", locals(), __salt__, __opts__["test"], networks.absent)


def bridge(name, interface=None, timeout_s=60, vlan=None, type="linux", force=False, **kwargs):
    """
    Ensure that a bridge exists. A missing bridge is created and gets the host's own address, with
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

    :return: ``changes``: the bridge to the interface or VLAN on which it was created

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

    :return: ``changes``: the bridge to ``removed``

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.bridge_absent name=br0
    """
    return result.run("virt.bridge_absent", locals(), __salt__, __opts__["test"], bridges.absent)


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

    :return: ``changes``: the kind of firewall to its rules, in its own syntax

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall name=ports
    """
    return result.run("virt.firewall", locals(), __salt__, __opts__["test"], firewalls.applied)


def firewall_absent(name, **kwargs):
    """
    Ensure that the rules of ``virt.firewall`` do not exist.

    :param name: name of the state; not used otherwise

    :return: ``changes``: ``rules`` to ``removed``

    CLI Example:

    .. code-block:: bash

        salt hv1 state.single virt.firewall_absent name=ports
    """
    return result.run(
        "virt.firewall_absent", locals(), __salt__, __opts__["test"], firewalls.absent
    )


def keys(name, basepath="/etc/pki", reload=None, **kwargs):
    """
    Install the CA, server and client certificates and keys of libvirt and QEMU, and make the
    running daemon load them.

    :param name: name of the state; not used otherwise
    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``
    :param reload: whether the daemon reloads the certificates, which a TLS handshake verifies;
        default: if ``basepath`` is ``/etc/pki``, where libvirt reads them
    :param country: and ``state``, ``locality``, ``organization``: parts of the certificates'
        subject, unless the master's ``virt:pki`` sets them
    :param expiration_days: validity of the certificates in days, at most ``virt:pki:days`` of the
        master (365). They are renewed when less than a third is left

    :return: ``changes``: each file to ``new``, ``update`` and so on, never a key. With
        ``test=True`` nothing is created, here or on the master. If the master issues no
        certificates, ``result`` is False and the comment has the reason. See
        docs/how-to/certificates.md

    CLI Example:

    .. code-block:: bash

        salt 'hv*' state.single virt.keys name=libvirt_keys
    """
    return result.run(
        "virt.keys", locals(), __salt__, __opts__["test"], certificates.placed, certificates.SUBJECT
    )
