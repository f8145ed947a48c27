"""Count how many more guests of one size fit: on each host, in total, and after the loss of a
host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltvirt.placement import account, choose, facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.placement.facts import Host, PlacementRequest
    from saltvirt.placement.policy import PlacementPolicy


@dataclass(frozen=True)
class Capacity:
    """fits: host to count, each host by itself. total: for all hosts, with shared storage counted
    once. limits: host to the filter that limits it. lost: host to (count, unplaced guests).

    ``lost``: how many would still fit if the host were lost and its guests had moved to the others,
    and which of its guests would find no host.
    """

    fits: dict[str, int]
    limits: dict[str, str]
    lost: dict[str, tuple[int, list[str]]]
    total: int

    @property
    def total_with_one_lost(self) -> int:
        """The worst case; 0 if the loss of some host leaves a guest without a host."""
        counts = [0 if unplaced else count for count, unplaced in self.lost.values()]
        return min(counts, default=0)


def capacity(hosts: Iterable[Host], request: PlacementRequest, policy: PlacementPolicy) -> Capacity:
    """The Capacity of the hosts for guests like the request."""
    hosts = list(hosts)
    counted = {host.name: count(host, request, policy) for host in hosts}
    return Capacity(
        fits={name: number for name, (number, _) in counted.items()},
        limits={name: limit for name, (_, limit) in counted.items()},
        lost={host.name: _without(host, hosts, request, policy) for host in hosts},
        total=_total_fits(hosts, {name: number for name, (number, _) in counted.items()}, request,
                      policy),
    )  # fmt: skip


def _total_fits(
    hosts: Iterable[Host],
    fits: Mapping[str, int],
    request: PlacementRequest,
    policy: PlacementPolicy,
) -> int:
    """The sum of all hosts, with shared storage counted once."""
    remaining: dict[str | None, float] = {}
    total = 0
    for host in (candidate for candidate in hosts if fits[candidate.name]):
        host_request, number = request.for_host(host), fits[host.name]
        for store, size in _shared(host_request, host).items():
            name = host.storage[store].shared
            free = host.free_store_bytes(policy, store)
            remaining[name] = min(remaining.get(name, free), free)
            number = min(number, int(remaining[name] // size))
        for store, size in _shared(host_request, host).items():
            remaining[host.storage[store].shared] -= number * size
        total += number
    return total


def _shared(host_request: PlacementRequest, host: Host) -> dict[str, int]:
    sizes = account.storage(host_request, host)
    return {s: size for s, size in sizes.items() if size and host.storage[s].shared}


def count(host: Host, request: PlacementRequest, policy: PlacementPolicy) -> tuple[int, str]:
    """(how many fit on the host, the filter that rejects the next one)."""
    rejection = choose.first_reason(host, request, policy)
    if rejection:
        return 0, rejection[0]
    request = request.for_host(host)
    vcpus, memory_kib, pages = account.demand(request, host, policy)
    room: dict[str, float] = {"vcpu": host.free_vcpus(policy) // vcpus}
    if memory_kib:
        room["memory"] = host.free_memory_kib(policy) // memory_kib
    for size, kib in pages.items():
        room[f"huge pages of {size} KiB"] = host.free_hugepages_kib(policy, size) // kib
    for store, size in account.storage(request, host).items():
        if size:
            name = "disk" if store == host.images_store else store
            room[name] = host.free_store_bytes(policy, store) // size
    if request.groups and request.group_policy == "separate":
        room["separate"] = 1
    limit = min(room, key=room.__getitem__)
    return int(room[limit]), limit


def _without(
    lost: Host, hosts: list[Host], request: PlacementRequest, policy: PlacementPolicy
) -> tuple[int, list[str]]:
    """(how many fit after the loss of a host, names of its guests that find no host)."""
    remaining = {host.name: host for host in hosts if host is not lost}
    unplaced = []
    for guest in sorted(lost.guests, key=lambda g: -g.memory_kib):
        if not guest.meant_to_run:
            continue
        moving = facts.of_guest(guest, lost)
        ranked = choose.choose(remaining.values(), moving, policy).ranked
        if ranked:
            remaining = account.after_placement(remaining, ranked[0].host, moving, guest)
        else:
            unplaced.append(guest.name)
    fits = {host.name: count(host, request, policy)[0] for host in remaining.values()}
    return _total_fits(remaining.values(), fits, request, policy), unplaced
