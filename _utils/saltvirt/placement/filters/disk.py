"""The file systems of the guest's disks must have space for their virtual size, multiplied by the
ratio: in the images folder and in other folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.placement import account
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


def reason(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> str | None:
    in_folders = {host.folder_store(disk.path) for disk in request.disks if not disk.pool}
    if request.disk_bytes:
        in_folders.add(host.images_store)
    for store in sorted(filter(host.is_silent, in_folders)):
        return f"{store} does not respond"
    shortfalls = account.shortfalls(request, host, policy)
    for store in sorted(in_folders & set(shortfalls)):
        wanted_bytes, free = shortfalls[store]
        location = "" if store == host.images_store else f" on {store}"
        return (
            f"{human_bytes(wanted_bytes)} of disk space requested{location}, "
            f"{human_bytes(free)} free"
        )
    return None
