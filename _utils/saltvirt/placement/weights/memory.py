"""The fraction of memory that would be left."""

from saltvirt.placement import account


def score(host, request, policy):
    capacity = host.capacity_memory_kib(policy)
    _, wanted, _ = account.takes(request, host, policy)
    return (host.free_memory_kib(policy) - wanted) / capacity if capacity else 0.0
