"""Memory that is promised, not the free memory of the moment."""


def reason(host, request, policy):
    free = host.free_memory_kib(policy)
    if request.memory_kib > free:
        return (
            f"{request.memory_kib // 1024} MiB of memory wanted, {max(0, free) / 1024:.0f} of "
            f"{host.capacity_memory_kib(policy) / 1024:.0f} MiB free"
        )
    return None
