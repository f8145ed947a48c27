"""The fraction of disk that would be left: in the images folder, or on what is left least of."""

from saltvirt.placement import account


def score(host, request, policy):
    wanted = account.storage(request, host) or {host.images_store: 0}
    return min(_left(host, policy, store, size) for store, size in wanted.items())


def _left(host, policy, store, size):
    total = host.storage[store].total_bytes
    return (host.free_store_bytes(policy, store) - size) / total if total else 0.0
