"""
Manage the virtual networks of a hypervisor.

Every function accepts ``connection``, ``username`` and ``password``; the defaults are
``virt:connection:uri`` and ``virt:connection:auth``.

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
    """The NetworkSpec from a function's ``locals()``."""
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
    Create a virtual network. If a step fails, everything is rolled back.

    :param name: name of the network
    :param bridge: name of the bridge; None if libvirt creates and names it (``nat``, ``route``,
        ``open``, isolated) or if there is none (``private``, ``vepa``, ``passthrough``,
        ``hostdev``)
    :param forward: ``nat``, ``route``, ``open``, ``bridge`` (of the host), ``private``, ``vepa``,
        ``passthrough``, ``hostdev``; None: isolated
    :param ipv4_config: dictionary, see below
    :param ipv6_config: dictionary, see below
    :param vport: type of the virtual port (``openvswitch``, ``midonet``, ``802.1Qbg``,
        ``802.1Qbh``), or a dictionary with ``type`` and ``parameters``
    :param tag: VLAN tag, or a dictionary with ``tags`` (a list of ``id`` and ``nativeMode``) and
        ``trunk``
    :param autostart: whether it starts with the host
    :param start: start it immediately
    :param mtu: MTU in bytes
    :param domain: DNS domain of the guests: a name, or a dictionary with ``name`` and ``localOnly``
    :param nat: with ``nat``: dictionary with ``address`` and ``port``, each with ``start`` and
        ``end``
    :param interfaces: host interfaces to use, as a list or separated by spaces
    :param addresses: with ``hostdev``: PCI addresses, as a list or separated by spaces
    :param physical_function: with ``hostdev``: network card whose virtual functions are used
    :param dns: dictionary: ``forwarders`` (a list of ``domain``, ``addr``), ``txt`` (name to text),
        ``hosts`` (IP address to a list of names), ``srvs`` (a list of ``name``, ``protocol``,
        ``target``, ``port``, ``priority``, ``weight``, ``domain``)
    :param bandwidth: dictionary with ``inbound`` and ``outbound``
    :param portgroups: list of dictionaries: ``name``, ``default``, ``vlan``, ``virtualport``,
        ``bandwidth``
    :param dev: with ``nat`` or ``route``: host interface to which outgoing traffic is restricted
    :param stp: spanning tree protocol of the bridge
    :param delay: forward delay of the bridge in seconds
    :param isolated_ports: isolate the guests of the network from each other
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    The IP configurations are dictionaries:

    - ``cidr``: the network, for example ``192.168.124.0/24``; the host gets the first address
    - ``dhcp_ranges``: a list of dictionaries with ``start`` and ``end``
    - ``hosts``: fixed addresses of guests: ``ip``, ``mac``, ``name``, ``id``
    - ``bootp``: a dictionary with ``file`` and ``server``; ``tftp``: path of the served files

    :return: True

    :raises InvalidInput: an argument is invalid, or not supported by this forward mode
    :raises AlreadyExists: a network of this name exists

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
    Update a virtual network.

    The parameters are those of :func:`network_define`; settings that are not given are removed. Its
    UUID, its MAC address and a bridge that libvirt named are kept. DHCP ranges and hosts, DNS
    records, port groups and interfaces of an active network change immediately; all other changes
    take effect at its next start. Until then, ``virt.network_info`` reports it as ``pending``.

    :param name: name of the network
    :param bridge: see :func:`network_define`
    :param forward: see :func:`network_define`
    :param test: only show whether it would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if it was changed (with ``test``: would be changed), False if nothing differs

    :raises NotFound: the network does not exist
    :raises InvalidInput: an argument is invalid, or not supported by this forward mode

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
    Create or update a virtual network and start it, in one step. If a step fails, everything is
    rolled back.

    The states ``virt.network_defined`` and ``virt.network_running`` use this function.

    :param name: name of the network
    :param running: True: start it; None: do not change whether it is active
    :param autostart: whether it starts with the host
    :param restart: with ``running``: restart it for changes that libvirt cannot make while it is
        active, even if guests use it
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    All other parameters of :func:`network_define` except ``start`` are accepted, too.

    :return: a dictionary: ``changes`` (setting to ``old`` and ``new``), ``comment`` (a sentence)

    :raises InvalidInput: an argument is invalid or unknown

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
    Stop and undefine a virtual network if it exists. The state ``virt.network_absent`` uses this
    function.

    :param name: name of the network
    :param force: remove the network even if running guests use it; they lose their connection
    :param test: only show what would change
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``changes`` (setting to ``old`` and ``new``), ``comment`` (a sentence,
        and one that lists guests that are off and cannot start without the network)

    :raises InvalidInput: running guests use it

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_remove lab test=True
    """
    force, test = values.boolean(force, "force"), values.flag(test, "test")
    with _connect(kwargs) as conn:
        return network_state.remove(conn, name, force, test).show(test)


def list_networks(**kwargs):
    """
    List the virtual networks, active or not.

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
    Show one network, or all networks.

    :param name: name of the network; None: all networks
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of names to dictionaries: ``uuid``, ``bridge`` (or None), ``forward``
        (None: isolated), ``active``, ``autostart``, ``persistent``, ``pending`` (its definition was
        changed and takes effect at the next start), ``leases`` (a list of ``ipaddr``, ``mac``,
        ``hostname``, ``type``, ``expirytime`` and others). A network that cannot be read only has
        ``error``. If the network does not exist, the dictionary is empty.

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_info default
    """
    with _connect(kwargs) as conn:
        return networks.infos(conn, name)


def network_get_xml(name, **kwargs):
    """
    Return the definition of a network: the active one, if the network is active.

    :param name: name of the network
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: libvirt's XML, as a string

    :raises NotFound: the network does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_get_xml default
    """
    with _connect(kwargs) as conn:
        return networks.lookup(conn, name).XMLDesc(0)


def network_start(name, **kwargs):
    """
    Start a network.

    :param name: name of the network
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the network does not exist
    :raises OperationFailed: libvirt refused, for example because it is already active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_start default
    """
    with _connect(kwargs) as conn:
        return networks.start(networks.lookup(conn, name))


def network_stop(name, **kwargs):
    """
    Stop a network. Its guests keep their interfaces and lose the connection.

    :param name: name of the network
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the network does not exist
    :raises OperationFailed: libvirt refused, for example because it is not active

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_stop default
    """
    with _connect(kwargs) as conn:
        return networks.stop(networks.lookup(conn, name))


def network_undefine(name, **kwargs):
    """
    Undefine a network. An active network continues until it is stopped.

    :param name: name of the network
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the network does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_undefine default
    """
    with _connect(kwargs) as conn:
        return networks.undefine(networks.lookup(conn, name))


def network_set_autostart(name, state="on", **kwargs):
    """
    Set whether a network starts with the host.

    :param name: name of the network
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises NotFound: the network does not exist

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.network_set_autostart default off
    """
    with _connect(kwargs) as conn:
        return networks.set_autostart(networks.lookup(conn, name), lifecycle.on_off(state))
