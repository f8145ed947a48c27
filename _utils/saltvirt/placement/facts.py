"""What placement knows of a host and of the guest to place."""

from dataclasses import dataclass, field, replace

# of the words that saltvirt.host.domain has for states: these hold their memory
ACTIVE = {"running", "paused", "pmsuspended"}


@dataclass(frozen=True)
class Guest:
    """One guest that a host has: its full size, whether it is meant to run, and the deployment
    that it was made for."""

    name: str
    uuid: str = ""
    state: str = "shutdown"
    vcpus: int = 0
    memory_kib: int = 0
    autostart: bool = False
    groups: tuple = ()
    deployment: str | None = None

    @property
    def meant_to_run(self):
        return self.autostart or self.state in ACTIVE


@dataclass(frozen=True)
class Pool:
    """A storage pool: what it has, what is free, and what its thin volumes may still grow."""

    total_bytes: int = 0
    free_bytes: int = 0
    promised_bytes: int = 0


@dataclass(frozen=True)
class Needs:
    """What a guest would take of one host, by the profiles of that host.

    pools: name to bytes. cpu_models: those that the host can give, None when it does not
    tell. problem: why the guest cannot be made there, whatever room there is.
    """

    disk_bytes: int = 0
    pools: dict = field(default_factory=dict)
    bridges: frozenset = frozenset()
    networks: frozenset = frozenset()
    cpu_model: str | None = None
    cpu_models: frozenset | None = None
    image_here: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class Host:
    """A host's answer to ``virt.inventory``; see there for the units.

    needs: Needs of the guest that it was asked about.
    """

    name: str
    cpus: int
    memory_kib: int
    guests: tuple = ()
    arriving: tuple = ()
    arch: str = ""
    arches: tuple = ()
    types: tuple = ()
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_promised_bytes: int = 0
    bridges: frozenset = frozenset()
    networks: frozenset = frozenset()
    pools: dict = field(default_factory=dict)
    images: frozenset = frozenset()
    labels: dict = field(default_factory=dict)
    maintenance: str | None = None
    ratios: dict = field(default_factory=dict)
    needs: Needs | None = None

    def ratio(self, policy, name):
        """The host's own ratio where it has one, else the policy's."""
        return float(self.ratios.get(name, getattr(policy, f"{name}_ratio")))

    def used(self, policy, what):
        """Sum of ``vcpus`` or ``memory_kib`` of its guests, stopped ones by ratio, and of
        those that are on their way to it."""
        return sum(getattr(g, what) for g in self.arriving) + sum(
            getattr(g, what) * (1.0 if g.meant_to_run else policy.stopped_ratio)
            for g in self.guests
        )

    def capacity_vcpus(self, policy):
        return self.cpus * self.ratio(policy, "cpu")

    def capacity_memory_kib(self, policy):
        usable = max(0, self.memory_kib - policy.reserved_memory_kib)
        return usable * self.ratio(policy, "memory")

    def free_vcpus(self, policy):
        return self.capacity_vcpus(policy) - self.used(policy, "vcpus")

    def free_memory_kib(self, policy):
        return self.capacity_memory_kib(policy) - self.used(policy, "memory_kib")

    def free_disk_bytes(self, policy):
        """What may still be promised: free space, less what thin disks can still grow."""
        usable = self.disk_free_bytes - policy.reserved_disk_bytes
        return usable * self.ratio(policy, "disk") - self.disk_promised_bytes

    def free_pool_bytes(self, policy, name):
        """The same of a storage pool, of which nothing is reserved."""
        pool = self.pools[name]
        return pool.free_bytes * self.ratio(policy, "disk") - pool.promised_bytes


def host_from_inventory(name, data):
    """A Host from the plain dict that ``virt.inventory`` returned."""
    folder = data.get("images_folder") or {}
    guests = tuple(
        Guest(
            name=guest,
            uuid=facts.get("uuid", ""),
            state=facts.get("state", "shutdown"),
            vcpus=int(facts.get("vcpus", 0)),
            memory_kib=int(facts.get("memory_kib", 0)),
            autostart=bool(facts.get("autostart")),
            groups=tuple(facts.get("groups") or ()),
            deployment=facts.get("deployment"),
        )
        for guest, facts in sorted((data.get("guests") or {}).items())
    )
    arriving = tuple(
        Guest(guest, vcpus=int(facts["vcpus"]), memory_kib=int(facts["memory_kib"]))
        for guest, facts in sorted((data.get("arriving") or {}).items())
    )
    return Host(
        name=name,
        cpus=int(data["cpus"]),
        memory_kib=int(data["memory_kib"]),
        guests=guests,
        arriving=arriving,
        arch=data.get("arch", ""),
        arches=tuple(data.get("arches") or ()),
        types=tuple(data.get("types") or ()),
        disk_total_bytes=int(folder.get("total_bytes", 0)),
        disk_free_bytes=int(folder.get("free_bytes", 0)),
        disk_promised_bytes=int(folder.get("promised_bytes", 0)),
        bridges=frozenset(data.get("bridges") or ()),
        networks=frozenset(data.get("networks") or ()),
        pools={pool: Pool(**sizes) for pool, sizes in (data.get("pools") or {}).items()},
        images=frozenset(data.get("images") or ()),
        labels=dict(data.get("labels") or {}),
        maintenance=data.get("maintenance"),
        ratios=dict(data.get("ratios") or {}),
        needs=_needs(data["guest"]) if data.get("guest") else None,
    )


def _needs(data):
    """Needs from the plain dict under ``guest`` of ``virt.inventory``."""
    found = dict(data)
    for key in ("bridges", "networks", "cpu_models"):
        if found.get(key) is not None:
            found[key] = frozenset(found[key])
    return Needs(**found)


@dataclass(frozen=True)
class Request:
    """The guest to place. ``hypervisor``: libvirt's domain type, ``kvm`` also fits plain QEMU.

    pools: name of a storage pool to the bytes wanted of it. labels: the host must have them.
    prefer: labels by which a host is better. by_profile: each host's own Needs count.
    """

    name: str
    vcpus: int
    memory_kib: int
    disk_bytes: int = 0
    hypervisor: str = "kvm"
    arch: str | None = None
    image: str | None = None
    bridges: frozenset = frozenset()
    networks: frozenset = frozenset()
    pools: dict = field(default_factory=dict)
    cpu_model: str | None = None
    labels: dict = field(default_factory=dict)
    prefer: dict = field(default_factory=dict)
    groups: tuple = ()
    group_policy: str = "spread"
    only: str | None = None
    by_profile: bool = False

    def at(self, host):
        """The request with what the host's own profiles make of it."""
        needs = host.needs if self.by_profile else None
        if not needs:
            return self
        return replace(
            self,
            disk_bytes=self.disk_bytes + needs.disk_bytes,
            bridges=self.bridges | needs.bridges,
            networks=self.networks | needs.networks,
            pools={**self.pools, **needs.pools},
            cpu_model=self.cpu_model or needs.cpu_model,
        )
