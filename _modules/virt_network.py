"""
Virtual networks of a hypervisor.

Every function takes ``connection``, ``username`` and ``password``; what is not given
comes from ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings
    from saltvirt.host import connection
    from saltvirt.host.domain import lifecycle
    from saltvirt.host.network import network_state, networks
    from saltvirt.spec import network, values
    from saltvirt.states import networks as desired_networks

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _network_spec(arguments):
    """The NetworkSpec in a function's ``locals()``."""
    keys = network.NetworkSpec.keys()
    return network.parse(**{k: v for k, v in arguments.items() if k in keys})


def network_define(
    name,
    bridge,
    forward,
    ipv4_config=None,
    ipv6_config=None,
    vport=None,
    tag=None,
    autostart=True,
    start=True,
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
    Create a virtual network. When a step fails, nothing of it is left.

    :param name: the network's name
    :param bridge: name of the bridge; None where libvirt makes and names it (``nat``,
        ``route``, ``open``, isolated) and where there is none (``private``, ``vepa``,
        ``passthrough``, ``hostdev``)
    :param forward: ``nat``, ``route``, ``open``, ``bridge`` (of the host), ``private``,
        ``vepa``, ``passthrough``, ``hostdev``; None for an isolated network
    :param ipv4_config: a dict, see below
    :param ipv6_config: a dict, see below
    :param vport: type of the virtual port (``openvswitch``, ``midonet``, ``802.1Qbg``,
        ``802.1Qbh``), or a dict with ``type`` and ``parameters``
    :param tag: VLAN tag, or a dict with ``tags`` (a list of ``id`` and ``nativeMode``) and
        ``trunk``
    :param autostart: start it with the host
    :param start: start it now
    :param mtu: bytes in a packet
    :param domain: DNS domain of the guests: a name, or a dict with ``name`` and ``localOnly``
    :param nat: with ``nat``: a dict with ``address`` and ``port``, each with ``start`` and
        ``end``
    :param interfaces: host interfaces to use, as a list or separated by spaces
    :param addresses: with ``hostdev``: PCI addresses, as a list or separated by spaces
    :param physical_function: with ``hostdev``: the card whose virtual functions to use
    :param dns: a dict: ``forwarders`` (a list of ``domain``, ``addr``), ``txt`` (name to
        text), ``hosts`` (IP address to a list of names), ``srvs`` (a list of ``name``,
        ``protocol``, ``target``, ``port``, ``priority``, ``weight``, ``domain``)
    :param bandwidth: a dict with ``inbound`` and ``outbound``
    :param portgroups: a list of dicts: ``name``, ``default``, ``vlan``, ``virtualport``,
        ``bandwidth``
    :param dev: with ``nat`` or ``route``: the only host interface that traffic may leave by
    :param stp: spanning tree on the bridge
    :param delay: seconds until the bridge forwards
    :param isolated_ports: keep guests of the network from each other
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    The IP configurations are dicts:

    - ``cidr``: the network, e.g. ``192.168.124.0/24``; the host gets its first address
    - ``dhcp_ranges``: a list of dicts with ``start`` and ``end``
    - ``hosts``: addresses kept for guests: ``ip``, ``mac``, ``name``, ``id``
    - ``bootp``: a dict with ``file`` and ``server``; ``tftp``: path of the files served

    :return: True

    :raises InvalidInput: something is wrong, or not possible with this forward mode
    :raises AlreadyExists: a network of this name is there

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_define lab None nat \\
            ipv4_config="{cidr: 192.168.124.0/24, dhcp_ranges: \\
            [{start: 192.168.124.10, end: 192.168.124.99}]}"
        salt 'hyper*' virt.network_define main br0 bridge
    """
    spec = _network_spec(locals())
    start, autostart = values.flag(start, "start"), values.flag(autostart, "autostart")
    with _connect(kwargs) as conn:
        return networks.define(conn, spec, start, autostart)


def network_update(
    name,
    bridge,
    forward,
    ipv4_config=None,
    ipv6_config=None,
    vport=None,
    tag=None,
    mtu=None,
    domain=None,
    nat=None,
    interfaces=None,
    addresses=None,
    physical_function=None,
    dns=None,
    test=False,
    bandwidth=None,
    portgroups=None,
    dev=None,
    stp=None,
    delay=None,
    isolated_ports=None,
    **kwargs,
):
    """
    Change a virtual network to what is given, where it differs.

    The parameters are those of :func:`network_define`; what is not given is taken away.
    Its UUID, its MAC address and a bridge that libvirt named stay. A running network takes
    at once DHCP ranges and hosts, DNS records, port groups and interfaces; anything else
    holds from its next start: until then ``virt.network_info`` has it as ``pending``.

    :param name: the network's name
    :param bridge: see :func:`network_define`
    :param forward: see :func:`network_define`
    :param test: only tell whether it would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when it was changed (with ``test``: would be), False when it is so already

    :raises NotFound: no such network
    :raises InvalidInput: something is wrong, or not possible with this forward mode

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_update lab None nat test=True \\
            ipv4_config="{cidr: 192.168.124.0/24}"
    """
    spec = _network_spec(locals())
    with _connect(kwargs) as conn:
        return networks.update(conn, spec, values.flag(test, "test"))


def network_converge(
    name,
    running=None,
    autostart=True,
    restart=False,
    test=False,
    **kwargs,
):
    """
    Bring a virtual network to what is given, in one step: made where it is missing, changed where
    it differs, started. When a step fails, what was there is put back.

    The states ``virt.network_defined`` and ``virt.network_running`` are this function.

    :param name: of the network
    :param running: True: it runs afterwards. None: it runs, or not, as before
    :param autostart: whether it is started with the host
    :param restart: with ``running``: start it again for what it cannot take while it runs, although
        guests are on it
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    Every other parameter of :func:`network_define` but ``start`` is taken, too.

    :return: a dict: ``changes`` (what differs to ``old`` and ``new``), ``comment`` (a sentence)

    :raises InvalidInput: something is wrong, or a parameter is not known

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_converge main bridge=br0 forward=bridge running=True test=True
    """
    keys = network.NetworkSpec.keys()
    spec_options = {word: kwargs.pop(word) for word in [*kwargs] if word in keys}
    spec = network.parse(name=name, **spec_options)
    restart, test = values.boolean(restart, "restart"), values.flag(test, "test")
    running = None if running is None else values.flag(running, "running")
    autostart = values.flag(autostart, "autostart")
    desired = desired_networks.DesiredNetwork(spec, running, autostart, restart)
    with _connect(kwargs) as conn:
        return network_state.converge(conn, desired, test).show(test)


def network_remove(name, force=False, test=False, **kwargs):
    """
    Stop a virtual network and remove its definition, where there is one. The state
    ``virt.network_absent`` is this function.

    :param name: of the network
    :param force: also when running guests are on it: they lose its connection
    :param test: only tell what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``changes`` (what differs to ``old`` and ``new``), ``comment`` (a sentence, and
        one that names the guests that are off and cannot be started without it)

    :raises InvalidInput: running guests are on it

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_remove lab test=True
    """
    force, test = values.boolean(force, "force"), values.flag(test, "test")
    with _connect(kwargs) as conn:
        return network_state.remove(conn, name, force, test).show(test)


def list_networks(**kwargs):
    """
    The virtual networks, running or not.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a sorted list of names

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.list_networks
    """
    with _connect(kwargs) as conn:
        return networks.names(conn)


def network_info(name=None, **kwargs):
    """
    What is known of one network, or of all.

    :param name: the network's name; None for all
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of name to a dict: ``uuid``, ``bridge`` (or None), ``forward`` (None:
        isolated), ``active``, ``autostart``, ``persistent``, ``pending`` (its definition was
        changed and holds from the next start), ``leases`` (a list of ``ipaddr``, ``mac``,
        ``hostname``, ``type``, ``expirytime``, …). A network that cannot be read has only
        ``error``. No such network: an empty dict.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_info default
    """
    with _connect(kwargs) as conn:
        return networks.infos(conn, name)


def network_get_xml(name, **kwargs):
    """
    The definition of a network, as it runs or else as it would start.

    :param name: the network's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: libvirt's XML, as a string

    :raises NotFound: no such network

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_get_xml default
    """
    with _connect(kwargs) as conn:
        return networks.lookup(conn, name).XMLDesc(0)


def network_start(name, **kwargs):
    """
    Start a network.

    :param name: the network's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such network
    :raises OperationFailed: libvirt could not, e.g. as it runs already

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_start default
    """
    with _connect(kwargs) as conn:
        return networks.start(networks.lookup(conn, name))


def network_stop(name, **kwargs):
    """
    Stop a network. Guests on it keep their interface and lose its connection.

    :param name: the network's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such network
    :raises OperationFailed: libvirt could not, e.g. as it does not run

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_stop default
    """
    with _connect(kwargs) as conn:
        return networks.stop(networks.lookup(conn, name))


def network_undefine(name, **kwargs):
    """
    Remove the definition of a network. One that runs goes on until it is stopped.

    :param name: the network's name
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such network

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_undefine default
    """
    with _connect(kwargs) as conn:
        return networks.undefine(networks.lookup(conn, name))


def network_set_autostart(name, state="on", **kwargs):
    """
    Have a network start with the host, or not.

    :param name: the network's name
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: no such network

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_set_autostart default off
    """
    with _connect(kwargs) as conn:
        return networks.set_autostart(networks.lookup(conn, name), lifecycle.on_off(state))
