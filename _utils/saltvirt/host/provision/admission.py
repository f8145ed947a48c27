"""Whether this host takes a guest. Asked under a lock, so that nothing is given away twice.

What is promised to a guest stands in its definition from the moment it is admitted: it
is defined under the same lock, marked with the process that makes its disks. If that
process dies, the mark outlives it, and the next init or repair of the name cleans up.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from saltvirt import errors, settings
from saltvirt.answers.creation import Phase
from saltvirt.host.domain import creation, guest_lock, lookup, placement_facts
from saltvirt.host.migration import reservations
from saltvirt.host.node import inventory
from saltvirt.host.provision import disk_build, disks, images_folder
from saltvirt.host.storage import files, mount_guard
from saltvirt.images import cache, locks
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy, from_config
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    import libvirt


@dataclass(frozen=True)
class AdmissionConfig:
    """What admission on this host goes by.

    get: Salt's ``config.get``. images_dir: the folder of images. pool: the storage pool where
    guests' disks are made; None: in the folder. terms: what the master sent with the request, see
    placement.account; None when nobody has asked through a master. overcommit: the room is not
    looked at.
    """

    get: settings.Get
    images_dir: str
    pool: str | None = None
    terms: account.PlacementTerms | None = None
    overcommit: bool = False

    @classmethod
    def configured(cls, get: settings.Get, **overrides: Any) -> AdmissionConfig:
        """The AdmissionConfig of this host's configuration."""
        location = images_folder.configured(get)
        return cls(get, location.folder, location.pool, **overrides)

    @property
    def disks_location(self) -> str:
        """The folder or the pool where guests' disks are made."""
        return self.pool or self.images_dir

    @property
    def cache_dir(self) -> str:
        """Where the images are that are backing files of guests."""
        return os.path.join(self.images_dir, cache.BASE)

    def policy(self) -> PlacementPolicy:
        """The placement policy: the master's when it has sent it, else that of the configuration.

        What the configuration here says more strictly holds either way, see placement.facts.Host.
        """
        policy_data = self.terms.policy if self.terms else None
        if policy_data is None:
            policy_data = settings.mapping(self.get, "placement")
        return from_config(policy_data)

    def elsewhere(self) -> dict[str, int]:
        """{name of shared storage: what the thin disks of other hosts' guests may still grow}."""
        return self.terms.elsewhere if self.terms else {}

    def guest(self, operation: str, *names: str) -> AbstractContextManager[None]:
        """The locks of guests, for a ``with`` block: see ``guest_lock.held``."""
        return guest_lock.acquire(guest_lock.folder(self.get), operation, *names)

    def lock(self) -> AbstractContextManager[None]:
        """The per-host lock, for a ``with`` block; the kernel frees it when we die.

        It lies in a folder that only root can write to (``virt:lock``, /run/salt-virt).
        """
        folder = locks.private(settings.folder(self.get, "lock", locks.RUN))
        return locks.exclusive(os.path.join(folder, "admit.lock"))


def config_of(get: settings.Get, arguments: dict[str, Any]) -> AdmissionConfig:
    """The AdmissionConfig of an adapter's call.

    arguments: its keyword arguments, from which ``placement`` and ``overcommit`` are taken; None is
    as
    if they were not given.
    """
    terms_data, overcommit = arguments.pop("placement", None), arguments.pop("overcommit", None)
    terms = (
        account.PlacementTerms.from_answer(terms_data, "placement")
        if terms_data is not None
        else None
    )
    if overcommit is None:
        overcommit = settings.boolean(get, "overcommit", False)
    if not isinstance(overcommit, bool):
        raise errors.InvalidInput(f"overcommit {overcommit!r} is not True or False")
    return AdmissionConfig.configured(get, terms=terms, overcommit=overcommit)


def host_facts(conn: libvirt.virConnect, admission_config: AdmissionConfig) -> facts.Host:
    """This host as placement on the master sees it."""
    inventory_facts = inventory.read(conn, admission_config.get, admission_config.images_dir)
    host = facts.host_of(conn.getHostname(), inventory_facts)
    return account.with_reserved(host, admission_config.elsewhere())


def refuse_name_in_use(
    conn: libvirt.virConnect, name: str, exclude_name: str | None = None
) -> None:
    """Raises AlreadyExists when another domain has the name, in lower or upper case, and is not a
    leftover. exclude_name: the name of a domain that will have this one instead."""
    dom = lookup.find(conn, name)
    if dom is None:
        for other_name in lookup.names(conn):
            if other_name != exclude_name and other_name.lower() == name.lower():
                raise errors.AlreadyExists(
                    f"{name}: {other_name} exists already on {conn.getHostname()}, and host names "
                    f"do "
                    "not differ by case"
                )
        return
    phase = creation.of_domain(dom)
    if phase is Phase.CREATING:
        raise errors.AlreadyExists(f"{name} is being created on {conn.getHostname()} right now")
    if phase is Phase.COMPLETE:
        raise errors.AlreadyExists(f"{name} exists already on {conn.getHostname()}")


def refuse_name_taken(conn: libvirt.virConnect, name: str, exclude_name: str | None = None) -> None:
    """The same, also for a leftover."""
    refuse_name_in_use(conn, name, exclude_name)
    if lookup.find(conn, name):
        raise errors.AlreadyExists(
            f"{name} exists already on {conn.getHostname()}, and its creation was interrupted: "
            f"salt-run virt.repair name={name} shows what to do"
        )


def recheck(
    conn: libvirt.virConnect, admission_config: AdmissionConfig, request: facts.PlacementRequest
) -> None:
    """Raises Refused when a guest that is being moved here was promised the room meanwhile.

    A migration takes no lock of ours: it writes its reservation and looks then. So does an init:
    it calls this once its guest is defined.
    """
    if reservations.local(present=()):
        check(
            conn, admission_config, replace(request, disk_bytes=0, pools={}, disks=()), is_new=False
        )


def check(
    conn: libvirt.virConnect,
    admission_config: AdmissionConfig,
    request: facts.PlacementRequest,
    is_new: bool = True,
    filter_names: Collection[str] | None = None,
) -> None:
    """Raises Refused, with the host and the reason, when the host does not take the guest; NoRoom
    when it only has no room.

    request: placement's Request. is_new: raise AlreadyExists for a name that is taken; without,
    it is the guest that is there, which wants more. filter_names: names of the filters that are
    asked.
    """
    if is_new:
        refuse_name_in_use(conn, request.name)
    for folder in sorted({os.path.dirname(disk.path) for disk in request.disks if disk.path}):
        mount_guard.refuse_unmounted(folder)
    host = host_facts(conn, admission_config)
    skipped_filters = choose.ROOM if admission_config.overcommit else ()
    rejection = choose.admits(
        host, request, admission_config.policy(), skipped_filters, filter_names
    )
    if rejection:
        kind = errors.NoRoom if rejection[0] in choose.ROOM else errors.Refused
        raise kind(f"{host.name}: {rejection[1]}")


def check_start(
    conn: libvirt.virConnect, admission_config: AdmissionConfig, dom: libvirt.virDomain
) -> None:
    """Raises NoRoom when the memory or the vCPUs of those that run would be more than the policy
    allows if this guest were started. What stopped guests keep for later is not asked."""
    host = host_facts(conn, admission_config)
    guest = next((host_guest for host_guest in host.guests if host_guest.name == dom.name()), None)
    if guest is not None and guest.state not in facts.ACTIVE and not admission_config.overcommit:
        _check_running(host, facts.of_guest(guest, host), admission_config.policy())


def check_transient(conn: libvirt.virConnect, admission_config: AdmissionConfig, xml: str) -> None:
    """The same of a guest that is started from a definition, and is gone when it stops."""
    if not admission_config.overcommit:
        _check_running(
            host_facts(conn, admission_config),
            request_of(Domain.fromstring(xml)),
            admission_config.policy(),
        )


def _check_running(
    host: facts.Host, request: facts.PlacementRequest, policy: PlacementPolicy
) -> None:
    request = replace(request, stopped=False, disks=())
    policy = replace(host.effective_policy(policy), stopped_ratio=0.0)
    unlimited_host = replace(host, limits={})  # they are in the policy by now
    rejection = choose.admits(unlimited_host, request, policy, only_filters=("vcpu", "memory"))
    if rejection:
        raise errors.NoRoom(
            f"{host.name}: {rejection[1]}: stop another guest, move this one, or start it anyway "
            "with overcommit=True"
        )


def request_of(
    definition: Domain, builds: Collection[disk_build.DiskBuild] = ()
) -> facts.PlacementRequest:
    """placement's Request for a guest's xml Domain. builds: disks.Work of its disks."""
    sources = {(nic.type, nic.source) for nic in definition.interfaces}
    tree = ElementTree.fromstring(definition.tostring())
    return facts.PlacementRequest(
        name=definition.name or "",
        vcpus=definition.vcpu.maximum or 1,
        memory_kib=definition.memory_kib or 0,
        max_memory_kib=definition.max_memory_kib or 0,
        page_kib=placement_facts.page_kib(tree),
        disks=tuple(
            facts.DiskFootprint(size, files.real(path)) for path, size in disks.folder_bytes(builds)
        ),
        hypervisor=definition.type or "",
        # VMware's are port groups of its own
        bridges=frozenset(
            source
            for kind, source in sources
            if kind == "bridge" and source and definition.type != "vmware"
        ),
        networks=frozenset(source for kind, source in sources if kind == "network" and source),
        pools=disks.pool_bytes(builds),
        cpu_model=definition.cpu.model if definition.cpu.mode == "custom" else None,
    )
