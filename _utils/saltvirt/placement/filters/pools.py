"""Every storage pool that the guest uses must be there, with room by ratio."""

from saltvirt.units import human_bytes


def reason(host, request, policy):
    missing = sorted(set(request.pools) - set(host.pools))
    if missing:
        return f"has no storage pool {', '.join(missing)}"
    for name, wanted in sorted(request.pools.items()):
        free = max(0, host.free_pool_bytes(policy, name))
        if wanted > free:
            return f"{human_bytes(wanted)} wanted of pool {name}, {human_bytes(free)} free"
    return None
