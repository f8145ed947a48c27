"""
Access guests: screens, serial ports and addresses.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings
    from saltvirt.answers import reach as reach_answers
    from saltvirt.host import connection
    from saltvirt.host.domain import addresses, lookup
    from saltvirt.host.domain import console as host_console  # a function here has the same name
    from saltvirt.host.domain import screenshot as host_screenshot
    from saltvirt.pki.common import certs
    from saltvirt.pki.host import own_pair
    from saltvirt.spec import values
    from saltvirt.system import tls_listener

if TYPE_CHECKING:
    from salt_dunders import __salt__

SCREENSHOTS = "/var/cache/salt-virt/screenshots"

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def console(vm_, **kwargs):
    """
    Show a guest's displays and serial ports, with the commands to connect to them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``name``, ``host``, ``state``, ``graphics`` (list of ``type``,
        ``listen``, ``port``, ``connect``, and ``tunnel``: the ssh command to run first if the
        display only listens on the host itself) and ``serials`` (list of ``type``, ``port``,
        ``path``, ``connect``). A guest that is off has no ports

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.console <domain>
    """
    with _connect(kwargs) as conn:
        return host_console.console(conn, vm_)


def guest_addresses(vm_=None, **kwargs):
    """
    List the IP addresses of one guest, or of all running guests.

    The sources are, in this order: the DHCP server of libvirt's networks, the guest agent if it is
    connected, and the host's ARP table. The timeout for each is two seconds.

    :param vm_: name of a domain; default: all active domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to dictionaries of MAC addresses to ``interface``,
        ``source`` (``lease``, ``agent``, ``arp``) and ``addresses`` (list of ``address``,
        ``prefix``, ``type``); empty if unknown

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.guest_addresses <domain>
    """
    with _connect(kwargs) as conn:
        return addresses.addresses(conn, vm_)


def screenshot(vm_, path=None, screen=0, **kwargs):
    """
    Take a screenshot of a running guest.

    :param vm_: name of the domain
    :param path: absolute path of the PNG on this host; default: a new file in
        ``virt:screenshots`` (``/var/cache/salt-virt/screenshots``), readable by root only
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the path of the PNG

    :raises OperationFailed: the guest is not running, has no screen, or the file cannot be written

    CLI Example:

    .. code-block:: bash

        salt '*' virt.screenshot <domain>
    """
    folder = settings.folder(__salt__["config.get"], "screenshots", SCREENSHOTS)
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        data = host_screenshot.take(conn, lookup.lookup(conn, vm_), number)
    return host_screenshot.save(data, vm_, folder, path)


def display(vm_, **kwargs):
    """
    List a guest's displays and serial ports: type, location on this host, and how to connect.
    Passwords are not included.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``uuid``, ``host``, ``state``, ``displays`` (list of ``type``: ``vnc``,
        ``spice``, ``serial`` and so on, ``listen``, ``port``, ``socket``, ``connect``, ``tunnel``;
        null if not applicable)

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.display web1
    """
    with _connect(kwargs) as conn:
        return host_console.displays(conn, names.existing_guest(vm_)).to_answer()


def screen(vm_, width=480, screen=0, **kwargs):
    """
    Return a screenshot of a running guest as data.

    :param vm_: name of the domain
    :param width: maximum width in pixels; not applied if the hypervisor does not return PPM images
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``uuid``, ``png`` (base64)

    :raises OperationFailed: the guest is not running, or has no screen

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.screen web1
    """
    max_width = values.number(16, 8192)(width, "width")
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        dom = lookup.lookup(conn, names.existing_guest(vm_))
        return host_screenshot.small(conn, dom, number, max_width).to_answer()


def reach(vm_, kind, caller, screen=0, force=False, **kwargs):
    """
    Let a single client connect to a running guest's display, serial port or agent: a process of its
    own waits up to 40 s for the client on a port of this host, over TLS, and ends with the
    connection. ``salt-run virt.ticket``, ``virt.console`` and ``virt.exec`` use it.

    :param vm_: name of the domain
    :param kind: ``display``, ``serial`` or ``agent``
    :param caller: PEM of the CA certificate whose only client is admitted
    :param screen: number of the display
    :param force: disconnect the current user of the serial port
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``uuid`` (of the guest, even if its name is reused meanwhile), ``kind``,
        ``port``, ``authority`` (PEM of the certificate, created for this client), ``type``
        (``vnc``, ``spice``, ``pty``, ``agent`` and others)

    :raises OperationFailed: the guest is off, or has no such device, or all ports are in use

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.reach web1 display caller="$CALLER"
    """
    from saltvirt.console.host import launch, relay  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    get = __salt__["config.get"]
    number = values.number(0, 2**31)(screen, "screen")
    access_kind = values.choice(*reach_answers.KINDS, reach_answers.AGENT)(kind, "kind")
    client_ca = own_pair.authority(caller, "caller")
    local = settings.connection(get, dict(kwargs))
    with _connect(kwargs) as conn:
        uuid, details = launch.probe(conn, names.existing_guest(vm_), access_kind, number)
    pair = own_pair.generate(reach_answers.CERTIFICATE_NAME, certs.SERVER, 1)
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, client_ca)
    endpoint = tls_listener.TlsEndpoint(
        tls_listener.everywhere(), relay.port(get), relay.PORT_COUNT, credentials
    )
    request = relay.RelayRequest(
        uuid,
        access_kind,
        number,
        values.flag(force, "force"),
        local.uri,
        local.username,
        local.password,
        endpoint,
    )
    port = launch.start_relay(next(iter(saltvirt.__path__)), request)
    return reach_answers.Reach(uuid, access_kind, port, pair.authority, details).to_answer()
