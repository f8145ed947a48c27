"""
Virtual networks of a hypervisor as states.

:depends: libvirt-python in Salt's own Python
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt import settings  # noqa: E402
from saltvirt.design import desired  # noqa: E402
from saltvirt.host import connection as libvirt_connection  # noqa: E402
from saltvirt.host import network_desired  # noqa: E402
from saltvirt.spec import network as network_spec  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(given):
    words = {key: given[key] for key in ("connection", "username", "password")}
    return libvirt_connection.connect(settings.connection(__salt__["config.get"], words))


def _network(state, given, running):
    """given: the state's ``locals()``."""

    def work():
        desired.only_known(given["kwargs"], state)
        words = network_spec.NetworkSpec.keys()
        spec = network_spec.parse(**{k: v for k, v in given.items() if k in words})
        restart = bool(given.get("restart"))
        wish = network_desired.Wish(spec, running, bool(given["autostart"]), restart)
        with _connect(given) as conn:
            return network_desired.converge(conn, wish, __opts__["test"])

    return desired.answer(given["name"], __opts__["test"], work)


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

    name
        Of the network.

    bridge, forward
        See ``virt.network_define``. Without ``forward`` the network is isolated; ``bridge``
        is given where libvirt shall not choose the name, or where the bridge is the host's.

    ipv4_config, ipv6_config
        Dictionaries: ``cidr``, ``dhcp_ranges`` (``start``, ``end``), ``hosts`` (``ip``,
        ``mac``, ``name``), ``bootp`` (``file``, ``server``), ``tftp``.

    autostart
        Whether it is started with the host.

    vport, tag, mtu, domain, nat, interfaces, addresses, physical_function, dns, bandwidth,
    portgroups, dev, stp, delay, isolated_ports
        As for ``virt.network_define``. What is not given is taken away, but for port groups,
        ``stp`` and ``delay``.

    connection, username, password
        Of libvirt, instead of ``virt:connection:uri`` and ``virt:connection:auth``.

    ``changes`` has ``old`` and ``new`` of each thing that differs. With ``test=True`` the
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
    return _network(network_defined, locals(), None)


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
    When guests are on it they are named in the comment and nothing is cut, unless:

    restart
        Start it again although guests are on it. They are connected again after it.

    .. code-block:: yaml

        main:
          virt.network_running:
            - bridge: br0
            - forward: bridge

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_running main bridge=br0 forward=bridge
    """
    return _network(network_running, locals(), True)


def network_absent(name, force=False, connection=None, username=None, password=None, **kwargs):
    """
    Stop a virtual network and remove its definition.

    name
        Of the network.

    force
        Also when running guests are on it: they lose its connection.

    connection, username, password
        Of libvirt, instead of ``virt:connection:uri`` and ``virt:connection:auth``.

    .. code-block:: yaml

        lab:
          virt.network_absent

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.network_absent lab test=True
    """
    given = locals()

    def work():
        desired.only_known(kwargs, network_absent)
        with _connect(given) as conn:
            return network_desired.absent(conn, name, force, __opts__["test"])

    return desired.answer(name, __opts__["test"], work)
