"""The fraction of disk that would be left."""


def score(host, request, policy):
    total = host.disk_total_bytes
    return (host.free_disk_bytes(policy) - request.disk_bytes) / total if total else 0.0
