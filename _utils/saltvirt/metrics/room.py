"""What a host has, has promised, and could still promise, by placement's account."""

from __future__ import annotations

from collections.abc import Iterator

from saltvirt.metrics.family import Family, Sample, gauge, one
from saltvirt.placement.facts import Host
from saltvirt.placement.policy import PlacementPolicy


def families(host: Host, policy: PlacementPolicy) -> Iterator[Family]:
    """The Families of one host. policy: the host's own, or its master's."""
    here = {"host": host.name}
    kib = 1024
    yield one("host_cpus", "Threads of the host.", here, host.cpus)
    yield one("host_memory_bytes", "Memory of the host.", here, host.memory_kib * kib)
    yield one("host_vcpus_promised", "vCPUs that its guests take.", here,
              host.used(policy, "vcpus"))  # fmt: skip
    yield one("host_vcpus_free", "vCPUs that may still be promised; below zero when more are.",
              here, host.free_vcpus(policy))  # fmt: skip
    yield one("host_memory_promised_bytes",
              "Memory that its guests take, with what QEMU takes for each.",
              here, host.used(policy, "memory_kib") * kib)  # fmt: skip
    yield one("host_memory_free_bytes",
              "Memory that may still be promised; below zero when more is.",
              here, host.free_memory_kib(policy) * kib)  # fmt: skip
    yield one("host_maintenance", "1 while the host takes no guests.", here,
              int(host.maintenance is not None))  # fmt: skip
    yield one("host_arriving_guests", "Guests on their way to the host.", here, len(host.arriving))
    yield gauge("host_storage_silent", "1 for each file system that does not answer.",
                [Sample({**here, "mount": place}, 1) for place in host.silent])  # fmt: skip
    yield from _storage(host, policy)


def _storage(host: Host, policy: PlacementPolicy) -> Iterator[Family]:
    """The storage pools, and the folder of images."""
    stores = {name: host.pool_store(name) for name in host.pools}
    places = [({"host": host.name, "pool": name}, store) for name, store in stores.items()]
    yield gauge("pool_total_bytes", "How large what a storage pool is on is.",
                [Sample(at, host.storage[store].total_bytes) for at, store in places])  # fmt: skip
    yield gauge("pool_free_bytes", "What is free there at the moment.",
                [Sample(at, host.storage[store].free_bytes) for at, store in places])  # fmt: skip
    promised = [(at, host.storage[store]) for at, store in places]
    yield gauge("pool_promised_bytes", "What thin disks there may still grow.",
                [Sample(at, store.promised_bytes + store.elsewhere_bytes)
                 for at, store in promised])  # fmt: skip
    yield gauge("pool_promisable_bytes",
                "What may still be promised there; below zero when more is.",
                [Sample(at, host.free_store_bytes(policy, store))
                 for at, store in places])  # fmt: skip
    at, store = {"host": host.name}, host.storage[host.images_store]
    yield one("images_folder_total_bytes", "How large what the folder of images is on is.",
              at, store.total_bytes)  # fmt: skip
    yield one("images_folder_free_bytes", "What is free there at the moment.",
              at, store.free_bytes)  # fmt: skip
    yield one("images_folder_promisable_bytes",
              "What may still be promised there; below zero when more is.",
              at, host.free_disk_bytes(policy))  # fmt: skip
