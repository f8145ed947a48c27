"""What a hypervisor answers to the master's calls about displays, serial ports and agents."""

from __future__ import annotations

import saltvirt
from saltvirt import names, settings
from saltvirt.answers import reach
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.console import calls
from saltvirt.host import connection
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.spec import values
from saltvirt.system import tls_listener

_MAX_SCREEN = 2**31


@handles(calls.LIST_DISPLAYS)
def list_displays(host: MinionContext, request: calls.DisplaysRequest) -> reach.Displays:
    """Return the displays and serial ports of a guest, without passwords. Raises NotFound."""
    from saltvirt.host.domain import console  # noqa: PLC0415 - needs the binding

    with connection.connect(settings.connection(host.config, {})) as conn:
        return console.displays(conn, names.existing_guest(request.vm_))


@handles(calls.TAKE_SCREENSHOT)
def take_screenshot(host: MinionContext, request: calls.ScreenshotRequest) -> reach.Screenshot:
    """Return a screenshot. Raises NotFound, OperationFailed if the guest is off or has no
    display."""
    from saltvirt.host.domain import lookup, screenshot  # noqa: PLC0415 - needs the binding

    width = values.number(16, 8192)(request.width, "width")
    number = values.number(0, _MAX_SCREEN)(request.screen, "screen")
    with connection.connect(settings.connection(host.config, {})) as conn:
        dom = lookup.lookup(conn, names.existing_guest(request.vm_))
        return screenshot.small(conn, dom, number, width)


@handles(calls.START_RELAY)
def start_relay(host: MinionContext, request: calls.ReachRequest) -> reach.Reach:
    """Start a process that admits a single client, over TLS, and ends with its connection.

    Raises NotFound, OperationFailed if the guest is off or lacks the device, or if all ports are in
    use.
    """
    from saltvirt.console.host import launch, relay  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    number = values.number(0, _MAX_SCREEN)(request.screen, "screen")
    kind = values.choice(*reach.KINDS, reach.AGENT)(request.kind, "kind")
    client_ca = own_pair.authority(request.caller, "caller")
    local = settings.connection(host.config, {})
    with connection.connect(local) as conn:
        uuid, details = launch.probe(conn, names.existing_guest(request.vm_), kind, number)
    pair = own_pair.generate(reach.CERTIFICATE_NAME, certs.SERVER, 1)
    credentials = tls_listener.TlsCredentials(pair.authority, pair.certificate, pair.key, client_ca)
    endpoint = tls_listener.TlsEndpoint(
        tls_listener.everywhere(), relay.port(host.config), relay.PORT_COUNT, credentials
    )
    relay_request = relay.RelayRequest(
        uuid, kind, number, request.force, local.uri, local.username, local.password, endpoint
    )
    port = launch.start_relay(next(iter(saltvirt.__path__)), relay_request)
    return reach.Reach(uuid, kind, port, pair.authority, details)
