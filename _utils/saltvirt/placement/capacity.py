"""How many more guests of one size fit: on each host, in all, and with one host lost."""

from dataclasses import dataclass, replace

from saltvirt.placement import choose, facts


@dataclass(frozen=True)
class Capacity:
    """fits: host to count. limits: host to what ends it. lost: host to (count, homeless guests).

    ``lost`` says for each host how many would still fit if it were gone and its guests had
    moved to the others, and which of its guests would find no place.
    """

    fits: dict
    limits: dict
    lost: dict

    @property
    def total(self):
        return sum(self.fits.values())

    @property
    def total_with_one_lost(self):
        """The worst case; 0 when the loss of some host leaves a guest without a place."""
        counts = [0 if homeless else count for count, homeless in self.lost.values()]
        return min(counts, default=0)


def capacity(hosts, request, policy):
    """The Capacity of the hosts for guests like the request."""
    hosts = list(hosts)
    counted = {host.name: count(host, request, policy) for host in hosts}
    return Capacity(
        fits={name: number for name, (number, _) in counted.items()},
        limits={name: limit for name, (_, limit) in counted.items()},
        lost={host.name: _without(host, hosts, request, policy) for host in hosts},
    )


def count(host, request, policy):
    """(how many fit on the host, the filter that refuses the next one)."""
    fell = choose.first_reason(host, request, policy)
    if fell:
        return 0, fell[0]
    request = request.at(host)
    room = {
        "vcpu": host.free_vcpus(policy) // request.vcpus,
        "memory": host.free_memory_kib(policy) // request.memory_kib,
    }
    if request.disk_bytes:
        room["disk"] = host.free_disk_bytes(policy) // request.disk_bytes
    room.update(
        (f"pool {pool}", host.free_pool_bytes(policy, pool) // wanted)
        for pool, wanted in request.pools.items()
        if wanted
    )
    if request.groups and request.group_policy == "separate":
        room["separate"] = 1
    limit = min(room, key=room.get)
    return int(room[limit]), limit


def _without(gone, hosts, request, policy):
    """(how many fit when ``gone`` is lost, names of its guests that find no place)."""
    left = {host.name: host for host in hosts if host is not gone}
    homeless = []
    for guest in sorted(gone.guests, key=lambda g: -g.memory_kib):
        if not guest.meant_to_run:
            continue
        moving = facts.Request(guest.name, guest.vcpus, guest.memory_kib, hypervisor=_any(left))
        ranked = choose.choose(left.values(), moving, policy).ranked
        if ranked:
            best = left[ranked[0].host]
            left[best.name] = replace(best, guests=(*best.guests, guest))
        else:
            homeless.append(guest.name)
    return sum(count(host, request, policy)[0] for host in left.values()), homeless


def _any(hosts):
    return next((t for host in hosts.values() for t in host.types), "kvm")
