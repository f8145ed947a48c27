"""The fraction of vCPUs that would be left."""


def score(host, request, policy):
    capacity = host.capacity_vcpus(policy)
    return (host.free_vcpus(policy) - request.vcpus) / capacity if capacity else 0.0
