"""
Manage the virtual networks, the bridge and the firewall of a hypervisor.

Guests are connected to the bridge, which has the host's own address.

Every function that uses libvirt accepts ``connection``, ``username`` and ``password``; the defaults
are ``virt:connection:uri`` and ``virt:connection:auth``.

:depends: libvirt-python in Salt's own Python, for virtual networks
"""

import re
from typing import TYPE_CHECKING

import salt.utils.yaml
import yaml  # type: ignore[import-untyped]

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings
    from saltvirt.fleet.minion import client
    from saltvirt.host import connection, hooks
    from saltvirt.host.domain import lifecycle
    from saltvirt.host.network import network_state, networks
    from saltvirt.hostnet.bridge import bridges
    from saltvirt.hostnet.bridge import plan as plans
    from saltvirt.hostnet.firewall import firewall
    from saltvirt.pki.host import request
    from saltvirt.spec import network, values
    from saltvirt.states import networks as desired_networks

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS


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
    :param bandwidth: dictionary with ``inbound`` and ``outbound``, each with ``average`` and
        ``peak`` in KiB/s and ``burst`` in KiB
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


def bridge_create(bridge="br0", interface=None, timeout_s=60, vlan=None, type="linux", force=False):
    """
    Create a bridge on an interface and move the host's address to it.

    The previous configuration is restored if the bridge does not get the interface's addresses in
    time, or if nothing answers through it: the master, if its route uses the interface, otherwise
    the default gateway. A systemd timer restores it even if this minion dies, and a unit if the
    host reboots meanwhile.

    :param bridge: name of the bridge
    :param interface: default: the one with the default route, or the only one with an address
    :param timeout_s: timeout in seconds for reaching the master again
    :param vlan: VLAN id of the interface, 1 to 4094. The bridge is created on the VLAN, and the
        addresses of the interface are left unchanged. Default: the interface itself
    :param type: ``linux`` or ``ovs`` (Open vSwitch). The ``interface`` of an Open vSwitch bridge
        must have no address; default: none
    :param force: move the address even if high availability has guests on this host. If the bridge
        does not work, the host is reset and its guests are started elsewhere

    :return: a message

    :raises OperationFailed: the change was rolled back; or a bridge of Salt Virt is on a VLAN of
        the interface; or high availability has guests here

    Supports netplan, NetworkManager, systemd-networkd, wicked, network-scripts and ifupdown; raises
    Unsupported for other network managers.

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_create br0 eth0
        salt hv1 virt.bridge_create br100 eth0 vlan=100
    """
    if _is_ovs(type, vlan):
        return bridges.create_ovs_bridge(bridge, interface, _probe(), timeout_s)
    if vlan is None and not bridges.exists(bridge):
        _refuse_watched(force)
    return bridges.create_bridge(bridge, interface, _yaml(), _probe(), timeout_s, vlan)


def bridge_remove(bridge="br0", timeout_s=60, force=False):
    """
    Remove a bridge that ``virt.bridge_create`` created, and restore the previous configuration of
    its interface. If the master cannot be reached then, the bridge is restored.

    :param bridge: name of the bridge
    :param timeout_s: timeout in seconds for reaching the master again
    :param force: move the address even if high availability has guests on this host

    :return: a message

    :raises OperationFailed: a guest is connected to it, its files were changed, a bridge of Salt
        Virt is on a VLAN of its interface, or high availability has guests here

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_remove br0
    """
    record = bridges.bridge_record(bridge)
    if not record:
        return f"{bridge} was not created by virt.bridge_create and is not changed"
    if bridges.moves_address(record):
        _refuse_watched(force)
    return bridges.remove_bridge(bridge, _probe(), timeout_s)


def bridge_plan(bridge="br0", interface=None, vlan=None, type="linux"):
    """
    Show what ``virt.bridge_create`` would do. Nothing is changed.

    :param bridge: name of the bridge
    :param interface: default: the one with the default route, or the only one with an address
    :param vlan: VLAN id of the interface, 1 to 4094. The bridge is created on the VLAN, and the
        addresses of the interface are left unchanged. Default: the interface itself
    :param type: ``linux`` or ``ovs`` (Open vSwitch). The ``interface`` of an Open vSwitch bridge
        must have no address; default: none

    :return: ``interface``; ``files``: paths to the new content, without the values of settings that
        contain passwords or keys, or None for a file that would be deleted; ``commands`` that would
        be run; ``exists``: whether the bridge exists; ``created``: whether Salt Virt created it
        (also if it is configured but not up), then with its ``vlan``, ``type`` and, if it is on
        another one, ``interface``. If ``exists`` or ``created`` is True, nothing would be done

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.bridge_plan
    """
    is_ovs = _is_ovs(type, vlan)
    record = bridges.bridge_record(bridge)
    status = {"exists": bridges.exists(bridge), "created": bool(record)}
    if record:
        interface_below = interface if bridges.is_over(record, interface) else record["interface"]
        return {
            **status,
            "interface": interface_below,
            "vlan": record["vlan"],
            "type": record["type"],
        }
    if status["exists"]:
        return status
    if is_ovs:
        plan = bridges.plan_ovs(bridge, interface)
    else:
        interface, plan = bridges.plan(bridge, interface, _yaml(), vlan)
    commands = [" ".join(argv) for argv in (*plan.before, *plan.apply)]
    files = plans.shown(plan.files)
    return {**status, "interface": interface, "files": files, "commands": commands}


def _refuse_watched(force):
    """Check whether the features of this host allow the change."""
    for feature in () if values.boolean(force, "force") else hooks.installed():
        feature.check_network_change()


def _is_ovs(type, vlan):
    if type not in ("linux", "ovs"):
        raise errors.InvalidInput(f"type: {type!r} is not a type of bridge: use linux or ovs")
    if type == "ovs" and vlan is not None:
        raise errors.InvalidInput(
            "vlan is not for a bridge of type ovs: give the tag to the guests' interfaces"
        )
    return type == "ovs"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as netplan reads it: a MAC address that consists of digits is text, not a number."""

    yaml_implicit_resolvers = {
        first: [
            (tag, re.compile(r"(?:0|[-+]?[1-9][0-9]*)$") if tag.endswith(":int") else regexp)
            for tag, regexp in resolvers
            if not tag.endswith(":float")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _load(text):
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as exc:
        raise ValueError(str(exc)) from exc


def _yaml():
    return _load, _dump


def _dump(tree):
    return salt.utils.yaml.safe_dump(tree, default_flow_style=False)


def _probe():
    """The master's address, if there is a master."""
    master = __opts__.get("master_ip") or __opts__.get("master")
    if isinstance(master, str) and __opts__.get("file_client") != "local":
        return master, int(__opts__.get("master_port", 4506))
    return None


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
    if agent is None:
        agent = next(filter(None, (feature.port() for feature in hooks.installed())), None)
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
