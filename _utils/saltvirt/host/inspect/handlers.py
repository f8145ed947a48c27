"""What a hypervisor answers to the master's calls that inspect it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from saltvirt import names, settings
from saltvirt.answers import guest_calls, inspect_calls
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.answers.inspection import GuestAddresses, HostNetworks
from saltvirt.host import connection
from saltvirt.host.inspect import guest_addresses, host_networks


def _connect(host: MinionContext) -> AbstractContextManager[Any]:
    return connection.connect(settings.connection(host.config, {}))


@handles(inspect_calls.NETWORKS)
def list_networks(host: MinionContext, _request: guest_calls.HostRequest) -> HostNetworks:
    """Return the networks and the bridges of the host, with their guests."""
    with _connect(host) as conn:
        return host_networks.read(conn)


@handles(inspect_calls.ADDRESSES)
def list_addresses(host: MinionContext, request: guest_calls.NamedGuestRequest) -> GuestAddresses:
    """Return the addresses of a guest from all sources. Raises NotFound."""
    with _connect(host) as conn:
        return guest_addresses.read(conn, names.existing_guest(request.vm_))
