"""vCPUs: one guest never gets more than the host has; all together not more than by ratio."""


def reason(host, request, policy):
    if request.vcpus > host.cpus:
        return f"{request.vcpus} vCPUs wanted, the host has {host.cpus} CPUs"
    free = host.free_vcpus(policy)
    if request.vcpus > free:
        return (
            f"{request.vcpus} vCPUs wanted, {max(0, free):.0f} of "
            f"{host.capacity_vcpus(policy):.0f} free"
        )
    return None
