"""Facts about hosts and about the guest to place.

saltvirt.placement.account counts what a guest takes of a host, for every operation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from saltvirt.answers.creation import Phase
from saltvirt.placement import policy, resources
from saltvirt.schema import Message, optional, transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from saltvirt.placement.policy import PlacementPolicy

# states in which a guest keeps its memory
ACTIVE = {"running", "paused", "pmsuspended"}
IMAGES = "images"
SPREAD = "spread"


@dataclass(frozen=True)
class DiskFootprint(Message):
    """A disk of a guest: its maximum size, its file, folder or storage pool, and the name of its
    storage if several hosts share it."""

    size_bytes: int
    path: str | None = optional(None)
    pool: str | None = optional(None)
    shared: str | None = optional(None)


@dataclass(frozen=True)
class Guest(Message):
    """One guest of a host: its size at its start, whether it should run, and the request by which
    it was created.

    creating: it is incomplete; interrupted: and no process continues its creation, see phase.
    max_memory_kib: limit while it runs. page_kib: size of its
    huge pages, 0 for the host's default; None without. type: libvirt's domain type. deployment,
    group_policy, labels, prefer: from virt.init. backup: its backup schedule.
    """

    NAMED_BY: ClassVar[str] = "name"

    name: str
    uuid: str = ""
    state: str = "shutdown"
    vcpus: int = 0
    memory_kib: int = 0
    autostart: bool = False
    groups: tuple[str, ...] = ()
    deployment: str | None = None
    creating: bool = optional(False)
    interrupted: bool = optional(False)
    max_memory_kib: int = optional(0)
    page_kib: int | None = optional(None)
    type: str | None = optional(None)
    arch: str | None = optional(None)
    cpu_model: str | None = optional(None)
    bridges: frozenset[str] = optional(frozenset())
    networks: frozenset[str] = optional(frozenset())
    group_policy: str | None = optional(None)
    labels: dict[str, Any] = optional({})
    prefer: dict[str, Any] = optional({})
    disks: tuple[DiskFootprint, ...] = optional(())
    backup: str | None = optional(None)

    @property
    def phase(self) -> Phase:
        """The phase of its creation."""
        if self.interrupted:
            return Phase.INTERRUPTED
        return Phase.CREATING if self.creating else Phase.COMPLETE

    @property
    def meant_to_run(self) -> bool:
        creating = self.phase is Phase.CREATING
        return self.autostart or self.state in ACTIVE or creating


@dataclass(frozen=True)
class Arriving(Message):
    """What a host has reserved for a guest that is migrating to it. page_kib: as in Guest."""

    vcpus: int
    memory_kib: int
    page_kib: int | None = None


@dataclass(frozen=True)
class StorageSpace(Message):
    """A file system or storage pool: total, free, and what its thin disks may still grow.

    shared: the name that all hosts that share it use; elsewhere_bytes: what thin disks of other
    hosts' guests may still grow.
    """

    total_bytes: int = 0
    free_bytes: int = 0
    promised_bytes: int = 0
    shared: str | None = optional(None)
    elsewhere_bytes: int = transient(0)


@dataclass(frozen=True)
class StoragePool(StorageSpace):
    """A storage pool. store: the id of the file system below it, if others use that, too."""

    store: str | None = None


@dataclass(frozen=True)
class ImagesStorage(StoragePool):
    """The folder of images and its storage."""

    path: str | None = None


@dataclass(frozen=True)
class Needs(Message):
    """What a guest would take of one host, according to the host's own profiles.

    disk_bytes: in the images folder; disks: in other folders; pools: name to bytes. cpu_models:
    that the host supports, None if unknown. problem: why the guest cannot be created there,
    regardless of capacity.
    """

    disk_bytes: int = 0
    pools: dict[str, int] = field(default_factory=dict)
    bridges: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    cpu_model: str | None = None
    cpu_models: frozenset[str] | None = None
    image_here: bool = False
    problem: str | None = optional(None)
    disks: tuple[DiskFootprint, ...] = ()
    vcpus: int = 0
    memory_kib: int = 0
    max_memory_kib: int = 0
    page_kib: int | None = None


@dataclass(frozen=True)
class Inventory(Message):
    """A host's answer to ``virt.inventory``, from which a Host is built.

    cpus: threads. hugepages: size of pages in KiB to the amount of memory in KiB; hugepage_kib:
    their default size. stores: id of a file system to its StorageSpace; mounts: mount point to the
    id. images: addresses of the cached images. labels, ratios, placement: the host's own
    configuration. maintenance: why it accepts no guests. libvirt: its version as libvirt's number.
    silent: mount points of file systems that do not respond. guest: Needs of the requested guest.
    disk_profiles, nic_profiles: names of the profiles that guests can be created with.
    """

    cpus: int
    memory_kib: int
    arch: str = ""
    types: tuple[str, ...] = ()
    arches: tuple[str, ...] = ()
    hugepages: dict[str, int] = field(default_factory=dict)
    hugepage_kib: int | None = None
    guests: dict[str, Guest] = field(default_factory=dict)
    arriving: dict[str, Arriving] = field(default_factory=dict)
    images_folder: ImagesStorage = ImagesStorage()
    images: frozenset[str] = frozenset()
    bridges: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    stores: dict[str, StorageSpace] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    pools: dict[str, StoragePool] = field(default_factory=dict)
    labels: Any = None
    ratios: Any = None
    placement: Any = None
    maintenance: str | None = None
    libvirt: int = 0
    silent: tuple[str, ...] = optional(())
    guest: Needs | None = optional(None)
    disk_profiles: tuple[str, ...] = optional(())
    nic_profiles: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class Host:
    """A host's answer to ``virt.inventory``; see there for the units.

    needs: of the requested guest. limits: the host's own ``virt:placement``. stores: id to
    StorageSpace; mounts: mount point to the id of its StorageSpace; images_store: that of the
    images folder. hugepages: size in KiB to the amount of memory in KiB. silent: mount points of
    file systems that do not respond.
    """

    name: str
    cpus: int
    memory_kib: int
    guests: tuple[Guest, ...] = ()
    arriving: tuple[Guest, ...] = ()
    arch: str = ""
    arches: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_promised_bytes: int = 0
    bridges: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    pools: dict[str, StoragePool] = field(default_factory=dict)
    images: frozenset[str] = frozenset()
    labels: dict[str, Any] = field(default_factory=dict)
    maintenance: str | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    needs: Needs | None = None
    limits: dict[str, float] = field(default_factory=dict)
    hugepages: dict[int, int] = field(default_factory=dict)
    page_kib: int = 0
    stores: dict[str, StorageSpace] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    images_store: str = IMAGES
    silent: tuple[str, ...] = ()
    disk_profiles: tuple[str, ...] = ()
    nic_profiles: tuple[str, ...] = ()

    def effective_policy(self, policy: PlacementPolicy) -> PlacementPolicy:
        """The policy with the stricter settings of this host's own configuration."""
        return policy.stricter(self.limits)

    def ratio(self, policy: PlacementPolicy, name: str) -> float:
        """The host's own ratio if it has one, otherwise the policy's."""
        host_ratio = self.ratios.get(name)
        return float(
            getattr(self.effective_policy(policy), f"{name}_ratio")
            if host_ratio is None
            else host_ratio
        )

    @cached_property
    def sums(self) -> tuple[resources.ResourceSum, resources.ResourceSum]:
        """(ResourceSum of guests that count in full, of stopped guests)."""
        full = [guest for guest in self.guests if guest.meant_to_run]
        stopped = [guest for guest in self.guests if not guest.meant_to_run]
        return resources.total([*full, *self.arriving]), resources.total(stopped)

    def used(self, policy: PlacementPolicy, resource: str) -> float:
        """``vcpus`` or ``memory_kib`` that its guests take, including arriving guests, stopped
        guests by ratio, and the overhead of QEMU."""
        policy = self.effective_policy(policy)
        count: Callable[[resources.ResourceSum, PlacementPolicy], float] = getattr(
            resources, resource
        )
        full, stopped = (count(taken, policy) for taken in self.sums)
        return full + stopped * policy.stopped_ratio

    def capacity_vcpus(self, policy: PlacementPolicy) -> float:
        return self.cpus * self.ratio(policy, "cpu")

    def capacity_memory_kib(self, policy: PlacementPolicy) -> float:
        reserve = self.effective_policy(policy).reserve_kib(self.memory_kib)
        usable = max(0, self.memory_kib - sum(self.hugepages.values()) - reserve)
        return usable * self.ratio(policy, "memory")

    def free_vcpus(self, policy: PlacementPolicy) -> float:
        return self.capacity_vcpus(policy) - self.used(policy, "vcpus")

    def free_memory_kib(self, policy: PlacementPolicy) -> float:
        return self.capacity_memory_kib(policy) - self.used(policy, "memory_kib")

    def usual_page_kib(self, size: int) -> int:
        """The size of huge pages that a guest with this request gets; 0 requests the default."""
        return size or self.page_kib or min(self.hugepages, default=0)

    def free_hugepages_kib(self, policy: PlacementPolicy, size: int) -> float:
        """The free huge pages of one size, which are never overcommitted."""
        full, stopped = (
            sum(kib for page, kib in taken.pages.items() if self.usual_page_kib(page) == size)
            for taken in self.sums
        )
        used = full + stopped * self.effective_policy(policy).stopped_ratio
        return self.hugepages.get(size, 0) - used

    @cached_property
    def storage(self) -> dict[str, StorageSpace]:
        """Id to StorageSpace: every file system, and every pool that is on none of them."""
        sizes = (self.disk_total_bytes, self.disk_free_bytes, self.disk_promised_bytes)
        stores = {self.images_store: StorageSpace(*sizes), **self.stores}
        for name, pool in self.pools.items():
            stores.setdefault(self.pool_store(name), pool)
        return stores

    def pool_store(self, name: str) -> str:
        """The id of the StorageSpace of a pool."""
        return self.pools[name].store or f"pool {name}"

    def folder_store(self, path: str | None) -> str:
        """The id of the StorageSpace of a path; that of images if there is none."""
        mount = resources.longest(self.mounts, path)
        return self.images_store if mount is None else self.mounts[mount]

    def is_silent(self, store: str) -> bool:
        """Whether a StorageSpace is on a file system that does not respond."""
        return store in {self.mounts.get(mount, mount) for mount in self.silent}

    def free_store_bytes(self, policy: PlacementPolicy, store: str) -> float:
        """Space that may still be promised: free space minus what thin disks may still grow."""
        space, policy = self.storage[store], self.effective_policy(policy)
        reserved_bytes = policy.reserved_disk_bytes if store == self.images_store else 0
        promised = space.promised_bytes + space.elsewhere_bytes
        return (space.free_bytes - reserved_bytes) * self.ratio(policy, "disk") - promised

    def free_disk_bytes(self, policy: PlacementPolicy) -> float:
        """free_store_bytes of the images folder."""
        return self.free_store_bytes(policy, self.images_store)


def host_of(name: str, inventory: Inventory) -> Host:
    """The Host of that name from its Inventory.

    Raises InvalidInput that names an invalid setting of the host; ValueError or LookupError for
    inconsistent data.
    """
    folder = inventory.images_folder
    arriving = tuple(
        Guest(guest, vcpus=arrival.vcpus, memory_kib=arrival.memory_kib, page_kib=arrival.page_kib)
        for guest, arrival in sorted(inventory.arriving.items())
    )
    host = Host(
        name=name,
        cpus=inventory.cpus,
        memory_kib=inventory.memory_kib,
        guests=tuple(guest for _, guest in sorted(inventory.guests.items())),
        arriving=arriving,
        arch=inventory.arch,
        arches=inventory.arches,
        types=inventory.types,
        disk_total_bytes=folder.total_bytes,
        disk_free_bytes=folder.free_bytes,
        disk_promised_bytes=folder.promised_bytes,
        bridges=inventory.bridges,
        networks=inventory.networks,
        pools=inventory.pools,
        images=inventory.images,
        labels=policy.mapping(inventory.labels, "virt:labels"),
        maintenance=inventory.maintenance,
        ratios=policy.ratios(inventory.ratios),
        needs=inventory.guest,
        limits=policy.limits(inventory.placement),
        hugepages={int(size): kib for size, kib in inventory.hugepages.items()},
        page_kib=inventory.hugepage_kib or 0,
        stores=inventory.stores,
        mounts=inventory.mounts,
        images_store=folder.store or IMAGES,
        silent=inventory.silent,
        disk_profiles=inventory.disk_profiles,
        nic_profiles=inventory.nic_profiles,
    )
    for store in {*host.mounts.values(), host.images_store}:
        host.storage[store]  # fail here, not during placement, if an answer lacks a store
    return host


@dataclass(frozen=True)
class PlacementRequest:
    """The guest to place. ``hypervisor``: libvirt's domain type; ``kvm`` also accepts plain QEMU.

    disk_bytes: in the images folder. pools: name of a storage pool to the requested bytes. disks:
    in other folders, or those of a guest that migrates. labels: required of the host. prefer:
    preferred labels. by_profile: each host's own Needs count. stopped: the guest stays off and
    counts as such.
    """

    name: str
    vcpus: int
    memory_kib: int
    disk_bytes: int = 0
    hypervisor: str = "kvm"
    arch: str | None = None
    image: str | None = None
    bridges: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    pools: dict[str, int] = field(default_factory=dict)
    cpu_model: str | None = None
    labels: dict[str, Any] = field(default_factory=dict)
    prefer: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    group_policy: str = SPREAD
    only: str | None = None
    by_profile: bool = False
    max_memory_kib: int = 0
    page_kib: int | None = None
    disks: tuple[DiskFootprint, ...] = ()
    stopped: bool = False

    @property
    def type(self) -> str:
        """The type as in Guest."""
        return self.hypervisor

    def for_host(self, host: Host) -> PlacementRequest:
        """The request with the host's own Needs."""
        needs = host.needs if self.by_profile else None
        if not needs:
            return self
        return replace(
            self,
            disk_bytes=self.disk_bytes + needs.disk_bytes,
            bridges=self.bridges | needs.bridges,
            networks=self.networks | needs.networks,
            pools={**self.pools, **needs.pools},
            disks=(*self.disks, *needs.disks),
            cpu_model=self.cpu_model or needs.cpu_model,
            vcpus=needs.vcpus or self.vcpus,
            memory_kib=needs.memory_kib or self.memory_kib,
            max_memory_kib=needs.max_memory_kib or self.max_memory_kib,
            page_kib=self.page_kib if needs.page_kib is None else needs.page_kib,
        )


def as_guest(request: PlacementRequest) -> Guest:
    """The running Guest that the request will become. request: as its host counts it."""
    return Guest(
        request.name, "", "running", request.vcpus, request.memory_kib, groups=request.groups,
        max_memory_kib=request.max_memory_kib, page_kib=request.page_kib, type=request.type,
    )  # fmt: skip


def of_guest(guest: Guest, source: Host) -> PlacementRequest:
    """The request for an existing Guest of the source host, from its definition and from the stored
    request."""
    return PlacementRequest(
        guest.name,
        guest.vcpus,
        guest.memory_kib,
        hypervisor=guest.type or (source.types[0] if source.types else "kvm"),
        arch=guest.arch or source.arch or None,
        bridges=guest.bridges,
        networks=guest.networks,
        cpu_model=guest.cpu_model,
        labels=guest.labels,
        prefer=guest.prefer,
        groups=guest.groups,
        group_policy=guest.group_policy or SPREAD,
        max_memory_kib=guest.max_memory_kib,
        page_kib=guest.page_kib,
        disks=guest.disks,
        stopped=not guest.meant_to_run,
    )
