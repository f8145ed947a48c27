"""The fraction of memory that would be left."""


def score(host, request, policy):
    capacity = host.capacity_memory_kib(policy)
    return (host.free_memory_kib(policy) - request.memory_kib) / capacity if capacity else 0.0
