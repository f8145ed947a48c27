"""What a hypervisor answers to the master's calls that inspect it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from saltvirt import names, settings
from saltvirt.answers import guest_calls, inspect_calls
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.answers.inspection import (
    GuestAddresses,
    GuestDetails,
    HostNetworks,
    HostUsage,
    PoolVolumes,
)
from saltvirt.host import connection
from saltvirt.host.domain import guest_lock
from saltvirt.host.inspect import guest_addresses, guest_details, host_networks, host_volumes, usage


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


@handles(inspect_calls.GUEST_DETAILS)
def describe_guest(
    host: MinionContext, request: guest_calls.NamedGuestRequest
) -> dict[str, GuestDetails]:
    """Return all that this host knows about a guest. Raises NotFound."""
    name = names.existing_guest(request.vm_)
    with _connect(host) as conn:
        return {name: guest_details.read(conn, name, _runtime_folder(host))}


@handles(inspect_calls.VOLUMES)
def list_volumes(host: MinionContext, _request: guest_calls.HostRequest) -> dict[str, PoolVolumes]:
    """Return the volumes in the running storage pools of the host, with their guests."""
    with _connect(host) as conn:
        return host_volumes.read(conn)


@handles(inspect_calls.USAGE)
def measure_usage(host: MinionContext, _request: guest_calls.HostRequest) -> HostUsage:
    """Return what the host and its guests use."""
    with _connect(host) as conn:
        return usage.measure(conn, _runtime_folder(host))


def _runtime_folder(host: MinionContext) -> str:
    """Return the folder of what is not kept over a restart of the host."""
    return os.path.dirname(guest_lock.folder(host.config))
