"""The calls that inspect a host or a guest."""

from __future__ import annotations

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.guest_calls import HostRequest, NamedGuestRequest
from saltvirt.answers.inspection import (
    GuestAddresses,
    GuestDetails,
    HostNetworks,
    HostUsage,
    ImageSummary,
    PoolSummary,
    PoolVolumes,
)

NETWORKS = Call("networks", HostRequest, HostNetworks, Timeout.SHORT)
POOLS = Call("pool_info", HostRequest, dict[str, PoolSummary], Timeout.SHORT)
VOLUMES = Call("volumes", HostRequest, dict[str, PoolVolumes], Timeout.SHORT)
IMAGES = Call("images", HostRequest, dict[str, ImageSummary], Timeout.SHORT)
# the guest by its name
GUEST_DETAILS = Call("guest_details", NamedGuestRequest, dict[str, GuestDetails], Timeout.SHORT)
ADDRESSES = Call("addresses", NamedGuestRequest, GuestAddresses, Timeout.SHORT)
USAGE = Call("usage", HostRequest, HostUsage, Timeout.SHORT)
