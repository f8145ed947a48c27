"""
Getting to a guest: its screen, its serial port, its addresses.

:depends: libvirt-python in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import names, settings
    from saltvirt.answers import reach as reaching
    from saltvirt.host import connection
    from saltvirt.host.domain import addresses, lookup
    from saltvirt.host.domain import console as consoles  # the name is a function's here
    from saltvirt.host.domain import screenshot as pictures
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
    Where a guest's displays and serial ports are, and the commands that reach them.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``name``, ``host``, ``state``, ``graphics`` (list of ``type``, ``listen``,
        ``port``, ``connect``, and ``tunnel``: the ssh command to run first when the display
        listens on the host itself only) and ``serials`` (list of ``type``, ``port``, ``path``,
        ``connect``). A stopped guest has no ports yet

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt '*' virt.console <domain>
    """
    with _connect(kwargs) as conn:
        return consoles.console(conn, vm_)


def guest_addresses(vm_=None, **kwargs):
    """
    The IP addresses of one guest, or of all that run.

    Whoever knows is believed, in this order: the DHCP server of libvirt's networks, the
    guest's agent if it is connected, the host's ARP table. Nobody is waited for longer than
    two seconds.

    :param vm_: name of one domain; without it, all active domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to a dict of MAC address to ``interface``, ``source``
        (``lease``, ``agent``, ``arp``) and ``addresses`` (list of ``address``, ``prefix``,
        ``type``); empty when nobody knows

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt '*' virt.guest_addresses <domain>
    """
    with _connect(kwargs) as conn:
        return addresses.addresses(conn, vm_)


def screenshot(vm_, path=None, screen=0, **kwargs):
    """
    Take a picture of a running guest's screen.

    :param vm_: name of the domain
    :param path: absolute path of the PNG on this host; default: a new file in
        ``virt:screenshots`` (``/var/cache/salt-virt/screenshots``), readable by root only
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the path of the PNG

    :raises OperationFailed: the guest does not run, has no screen, or the file cannot be written

    CLI Example:

    .. code-block:: bash

        salt '*' virt.screenshot <domain>
    """
    folder = settings.folder(__salt__["config.get"], "screenshots", SCREENSHOTS)
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        data = pictures.take(conn, lookup.lookup(conn, vm_), number)
    return pictures.save(data, vm_, folder, path)


def display(vm_, **kwargs):
    """
    A guest's displays and serial ports, as data: what kind each is, where it is on this host, and
    what reaches it there. A password is never among it.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``uuid``, ``host``, ``state``, ``displays`` (list of ``type``: ``vnc``,
        ``spice``, ``serial`` and the like, ``listen``, ``port``, ``socket``, ``connect``,
        ``tunnel``, each null where there is none)

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.display web1
    """
    with _connect(kwargs) as conn:
        return consoles.displays(conn, names.existing_guest(vm_)).to_answer()


def screen(vm_, width=480, screen=0, **kwargs):
    """
    A picture of a running guest's screen, as data.

    :param vm_: name of the domain
    :param width: pixels that it is at most wide; from a hypervisor that makes pictures of another
        kind than PPM it comes as it is
    :param screen: number of the screen
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``uuid``, ``png`` (in base64)

    :raises OperationFailed: the guest does not run, or has no screen

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.screen web1
    """
    max_width = values.number(16, 8192)(width, "width")
    number = values.number(0, 2**31)(screen, "screen")
    with _connect(kwargs) as conn:
        dom = lookup.lookup(conn, names.existing_guest(vm_))
        return pictures.small(conn, dom, number, max_width).to_answer()


def reach(vm_, kind, caller, screen=0, force=False, **kwargs):
    """
    Let one caller reach a running guest's display, serial port or agent: a process of its own
    waits for him for 40 s at a port of this host, by TLS, and ends with him. ``salt-run
    virt.ticket``, ``virt.console`` and ``virt.exec`` do all of it.

    :param vm_: name of the domain
    :param kind: ``display``, ``serial`` or ``agent``
    :param caller: the certificate of the authority whose one client alone is let in, in PEM
    :param screen: number of the display
    :param force: take the serial port from whoever has it
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``uuid`` (of the guest that he reaches, whatever gets its name meanwhile),
        ``kind``, ``port``, ``authority`` (in PEM: of the certificate that is shown to him, made for
        this one caller), ``type`` (``vnc``, ``spice``, ``pty``, ``agent`` …)

    :raises OperationFailed: the guest is off, or has no such thing, or all ports are in use

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.reach web1 display caller="$CALLER"
    """
    from saltvirt.console.host import launch, relay  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    get = __salt__["config.get"]
    number = values.number(0, 2**31)(screen, "screen")
    access_kind = values.choice(*reaching.KINDS, reaching.AGENT)(kind, "kind")
    client_ca = own_pair.authority(caller, "caller")
    local = settings.connection(get, dict(kwargs))
    with _connect(kwargs) as conn:
        uuid, details = launch.probe(conn, names.existing_guest(vm_), access_kind, number)
    pair = own_pair.generate(reaching.CERTIFICATE_NAME, certs.SERVER, 1)
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
    return reaching.Reach(uuid, access_kind, port, pair.authority, details).to_answer()
