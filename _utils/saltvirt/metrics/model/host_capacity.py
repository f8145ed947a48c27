"""The capacity of a host: total, promised and free, as placement counts it."""

from __future__ import annotations

from collections.abc import Iterator

from saltvirt.metrics.model.family import Family, Sample, gauge, single_gauge
from saltvirt.placement.facts import Host
from saltvirt.placement.policy import PlacementPolicy


def families(host: Host, policy: PlacementPolicy) -> Iterator[Family]:
    """The Families of one host. policy: the host's own, or its master's."""
    labels = {"host": host.name}
    kib = 1024
    yield single_gauge("host_cpus", "CPU threads of the host.", labels, host.cpus)
    yield single_gauge("host_memory_bytes", "Memory of the host.", labels, host.memory_kib * kib)
    yield single_gauge("host_vcpus_promised", "vCPUs promised to the host's guests.", labels,
              host.used(policy, "vcpus"))  # fmt: skip
    yield single_gauge("host_vcpus_free", (
        "vCPUs that can still be promised; negative if overcommitted."
    ),
              labels, host.free_vcpus(policy))  # fmt: skip
    yield single_gauge("host_memory_promised_bytes",
              "Memory promised to the host's guests, including QEMU's overhead.",
              labels, host.used(policy, "memory_kib") * kib)  # fmt: skip
    yield single_gauge("host_memory_free_bytes",
              "Memory that can still be promised; negative if overcommitted.",
              labels, host.free_memory_kib(policy) * kib)  # fmt: skip
    yield single_gauge("host_maintenance", "1 while the host is in maintenance.", labels,
              int(host.maintenance is not None))  # fmt: skip
    yield single_gauge(
        "host_arriving_guests", "Guests that are migrating to the host.", labels, len(host.arriving)
    )
    yield gauge("host_storage_silent", "1 for each file system that does not respond.",
                [Sample({**labels, "mount": mount}, 1) for mount in host.silent])  # fmt: skip
    yield from _storage(host, policy)


def _storage(host: Host, policy: PlacementPolicy) -> Iterator[Family]:
    """The storage pools and the folder of images."""
    stores = {name: host.pool_store(name) for name in host.pools}
    pool_stores = [({"host": host.name, "pool": name}, store) for name, store in stores.items()]
    yield gauge("pool_total_bytes", "Size of the storage of a pool.",
                [Sample(labels, host.storage[store].total_bytes) for labels,
                store in pool_stores])  # fmt: skip
    yield gauge("pool_free_bytes", "Free space at the moment.",
                [Sample(labels, host.storage[store].free_bytes) for labels,
                store in pool_stores])  # fmt: skip
    promised = [(labels, host.storage[store]) for labels, store in pool_stores]
    yield gauge("pool_promised_bytes", "Space that thin disks may still use.",
                [Sample(labels, store.promised_bytes + store.elsewhere_bytes)
                 for labels, store in promised])  # fmt: skip
    yield gauge("pool_promisable_bytes",
                "Space that can still be promised; negative if overcommitted.",
                [Sample(labels, host.free_store_bytes(policy, store))
                 for labels, store in pool_stores])  # fmt: skip
    labels, store = {"host": host.name}, host.storage[host.images_store]
    yield single_gauge("images_folder_total_bytes", "Size of the storage of the images folder.",
              labels, store.total_bytes)  # fmt: skip
    yield single_gauge("images_folder_free_bytes", "Free space at the moment.",
              labels, store.free_bytes)  # fmt: skip
    yield single_gauge("images_folder_promisable_bytes",
              "Space that can still be promised; negative if overcommitted.",
              labels, host.free_disk_bytes(policy))  # fmt: skip
