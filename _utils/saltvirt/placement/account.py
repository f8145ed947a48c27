"""Count what a guest takes of a host: memory, huge pages, vCPUs and storage.

init, migrate, evacuate, rebalance, clone, start, update, setmem and the host's own admission all
use these functions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt.placement.resources import memory_kib, total
from saltvirt.schema import Message, optional

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.placement.facts import DiskFootprint, Guest, Host, PlacementRequest, StorageSpace
    from saltvirt.placement.policy import PlacementPolicy


def share(request: PlacementRequest, host: Host, policy: PlacementPolicy) -> float:
    """The fraction of the guest that counts on the host: 1, or the ratio of stopped guests."""
    return host.effective_policy(policy).stopped_ratio if request.stopped else 1


def demand(
    request: PlacementRequest, host: Host, policy: PlacementPolicy
) -> tuple[float, float, dict[int, float]]:
    """(vCPUs, KiB of memory, huge pages: size to KiB) that a PlacementRequest takes of a host."""
    resources, part = total([request]), share(request, host, policy)
    pages = {host.usual_page_kib(size): kib * part for size, kib in resources.pages.items()}
    return (
        resources.vcpus * part,
        memory_kib(resources, host.effective_policy(policy)) * part,
        pages,
    )


def storage(request: PlacementRequest, host: Host) -> Counter[str]:
    """{id of a StorageSpace: bytes} that a PlacementRequest takes of a host's storage.

    A disk on storage that the host shares is counted there already. Pools that the host lacks are
    skipped, because a filter reports them.
    """
    promised: Counter[str] = Counter()
    if request.disk_bytes:
        promised[host.images_store] += request.disk_bytes
    for pool, size in request.pools.items():
        if pool in host.pools:
            promised[host.pool_store(pool)] += size
    for disk in request.disks:
        store = store_of(disk, host)
        if store and not _is_shared(disk, host.storage[store]):
            promised[store] += disk.size_bytes
    return promised


def store_of(disk: DiskFootprint, host: Host) -> str | None:
    """The id of the StorageSpace for a disk; None for a pool that the host lacks."""
    if disk.pool:
        return host.pool_store(disk.pool) if disk.pool in host.pools else None
    return host.folder_store(disk.path)


def _is_shared(disk: DiskFootprint, store: StorageSpace) -> bool:
    return disk.shared is not None and disk.shared == store.shared


def shortfalls(
    request: PlacementRequest, host: Host, policy: PlacementPolicy
) -> dict[str, tuple[int, float]]:
    """{id of a StorageSpace: (requested bytes, free bytes)} of those that are too small for the
    request."""
    shortfalls = {}
    for store, wanted_bytes in storage(request, host).items():
        free = max(0, host.free_store_bytes(policy, store))
        if wanted_bytes > free:
            shortfalls[store] = (wanted_bytes, free)
    return shortfalls


def joined(hosts: Iterable[Host]) -> list[Host]:
    """The hosts, each with the promises of the others for storage that they share."""
    promised: Counter[str | None] = Counter()
    for host in hosts:
        for store in host.storage.values():
            promised[store.shared] += store.promised_bytes
    return [_knowing(host, promised) for host in hosts]


def _knowing(host: Host, promised: Counter[str | None]) -> Host:
    reserved = {
        name: replace(store, elsewhere_bytes=promised[store.shared] - store.promised_bytes)
        for name, store in host.storage.items()
        if store.shared
    }
    return replace(host, stores={**host.stores, **reserved}) if reserved else host


def with_reserved(host: Host, elsewhere: dict[str, int]) -> Host:
    """The host with the promises of others: {name of shared storage: bytes}."""
    changed = {
        name: replace(store, elsewhere_bytes=elsewhere[store.shared])
        for name, store in host.storage.items()
        if store.shared in elsewhere
    }
    return replace(host, stores={**host.stores, **changed}) if changed else host


@dataclass(frozen=True)
class PlacementTerms(Message):
    """Accompanies a request to a host, as its ``placement``.

    policy: the master's, read by ``policy.from_config``; None: that of the host's configuration.
    elsewhere: name of shared storage to the bytes that thin disks of other hosts' guests may still
    grow, which the host cannot know.
    """

    policy: dict[str, Any] | None = None
    elsewhere: dict[str, int] = optional({})


def terms(host: Host | None, policy: PlacementPolicy) -> PlacementTerms:
    """The PlacementTerms of a request to a host. host: a Host of :func:`joined`, or None."""
    stores = host.storage.values() if host else ()
    elsewhere = {
        store.shared: store.elsewhere_bytes
        for store in stores
        if store.shared and store.elsewhere_bytes
    }
    return PlacementTerms(policy.to_wire(), elsewhere)


def after_placement(
    cloud: dict[str, Host], name: str, request: PlacementRequest, guest: Guest
) -> dict[str, Host]:
    """The cloud (name to Host) after the host has received the guest of a PlacementRequest."""
    host = cloud[name]
    host_request = request.for_host(host)
    stores = dict(host.stores)
    grown = storage(host_request, host)
    for store, size in grown.items():
        old = host.storage[store]
        stores[store] = replace(old, promised_bytes=old.promised_bytes + size)
    updated = {**cloud, name: replace(host, guests=(*host.guests, guest), stores=stores)}
    sizes = [(host.storage[store].shared, size) for store, size in grown.items()]
    shared = {name: size for name, size in sizes if name}
    for other_host in [o for o in updated.values() if shared and o.name != name]:
        updated[other_host.name] = _grown(other_host, shared)
    return updated


def _grown(host: Host, shared: dict[str, int]) -> Host:
    changed = {
        name: replace(store, elsewhere_bytes=store.elsewhere_bytes + shared[store.shared])
        for name, store in host.storage.items()
        if store.shared in shared
    }
    return replace(host, stores={**host.stores, **changed}) if changed else host
