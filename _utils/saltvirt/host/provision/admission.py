"""Admission control of a host, under a lock so that no capacity is granted twice.

The domain definition records what a guest was granted. It is defined under the same lock and marked
with the process that creates its disks. If that process dies, the mark remains, and the next init
or repair of the same name removes the guest.
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
from saltvirt.host.storage import files
from saltvirt.images import cache
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy, from_config
from saltvirt.system import file_lock, mount_guard, paths, private_folder
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    import libvirt


@dataclass(frozen=True)
class AdmissionConfig:
    """Configuration of admission on this host.

    get: Salt's ``config.get``. images_dir: the images folder. pool: the pool for guests' disks, or
    None for the folder. terms: what the master sent with the request, see placement.account; None
    without a master. overcommit: ignore missing capacity.
    """

    get: settings.Get
    images_dir: str
    pool: str | None = None
    terms: account.PlacementTerms | None = None
    overcommit: bool = False

    @classmethod
    def configured(cls, get: settings.Get, **overrides: Any) -> AdmissionConfig:
        """Return the AdmissionConfig from this host's configuration."""
        location = images_folder.configured(get)
        return cls(get, location.folder, location.pool, **overrides)

    @property
    def disks_location(self) -> str:
        """The folder or pool for guests' disks."""
        return self.pool or self.images_dir

    @property
    def cache_dir(self) -> str:
        """The folder of the cached images, which are backing files of guests."""
        return os.path.join(self.images_dir, cache.BASE)

    def policy(self) -> PlacementPolicy:
        """Return the placement policy of the master, or else of this host's configuration.

        Stricter limits in this host's configuration always apply; see placement.facts.Host.
        """
        policy_data = self.terms.policy if self.terms else None
        if policy_data is None:
            policy_data = settings.mapping(self.get, "placement")
        return from_config(policy_data)

    def elsewhere(self) -> dict[str, int]:
        """Return {shared storage: bytes by which thin disks of other hosts' guests may still
        grow}."""
        return self.terms.elsewhere if self.terms else {}

    def guest(self, operation: str, *names: str) -> AbstractContextManager[None]:
        """Return a context manager that holds the locks of guests; see ``guest_lock.held``."""
        return guest_lock.acquire(guest_lock.folder(self.get), operation, *names)

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that holds the lock of this host.

        The lock file is in a folder that only root can write to (``virt:lock``, /run/salt-virt).
        The kernel releases the lock if the process dies.
        """
        folder = private_folder.ensure(settings.folder(self.get, "lock", paths.RUN))
        return file_lock.exclusive(os.path.join(folder, "admit.lock"))


def config_of(get: settings.Get, arguments: dict[str, Any]) -> AdmissionConfig:
    """Return the AdmissionConfig for a call of an adapter.

    arguments: keyword arguments, from which ``placement`` and ``overcommit`` are removed.
    """
    terms_data, overcommit = arguments.pop("placement", None), arguments.pop("overcommit", None)
    terms = None
    if terms_data is not None:
        terms = account.PlacementTerms.from_answer(terms_data, "placement")
    return config_for(get, terms, overcommit)


def config_for(
    get: settings.Get, terms: account.PlacementTerms | None, overcommit: object
) -> AdmissionConfig:
    """Return the AdmissionConfig for a call. overcommit: None: the host's setting."""
    if overcommit is None:
        overcommit = settings.boolean(get, "overcommit", False)
    if not isinstance(overcommit, bool):
        raise errors.InvalidInput(f"invalid overcommit: {overcommit!r}: must be True or False")
    return AdmissionConfig.configured(get, terms=terms, overcommit=overcommit)


def host_facts(conn: libvirt.virConnect, admission_config: AdmissionConfig) -> facts.Host:
    """Return the facts of this host as used in placement on the master."""
    inventory_facts = inventory.read(conn, admission_config.get, admission_config.images_dir)
    host = facts.host_of(conn.getHostname(), inventory_facts)
    return account.with_reserved(host, admission_config.elsewhere())


def refuse_name_in_use(
    conn: libvirt.virConnect, name: str, exclude_name: str | None = None
) -> None:
    """Raise AlreadyExists if a domain other than a leftover has the name, in upper or lower case.

    exclude_name: the name of a domain that is renamed to it.
    """
    dom = lookup.find(conn, name)
    if dom is None:
        for other_name in lookup.names(conn):
            if other_name != exclude_name and other_name.lower() == name.lower():
                raise errors.AlreadyExists(
                    f"cannot create {name}: {other_name} already exists on {conn.getHostname()}, "
                    "and host names are not case-sensitive"
                )
        return
    phase = creation.of_domain(dom)
    if phase is Phase.CREATING:
        raise errors.AlreadyExists(f"{name} is being created on {conn.getHostname()} right now")
    if phase is Phase.COMPLETE:
        raise errors.AlreadyExists(f"{name} already exists on {conn.getHostname()}")


def refuse_name_taken(conn: libvirt.virConnect, name: str, exclude_name: str | None = None) -> None:
    """Raise AlreadyExists if a domain has the name, including leftovers."""
    refuse_name_in_use(conn, name, exclude_name)
    if lookup.find(conn, name):
        raise errors.AlreadyExists(
            f"{name} already exists on {conn.getHostname()}, and its creation was "
            f"interrupted: run salt-run virt.repair name={name}"
        )


def recheck(
    conn: libvirt.virConnect, admission_config: AdmissionConfig, request: facts.PlacementRequest
) -> None:
    """Raise Refused if an incoming migration was granted the capacity meanwhile.

    A migration takes no lock of this host. It writes its reservation and then checks, so an init
    calls this function after it has defined its guest.
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
    """Raise Refused if the host cannot accept the guest; NoRoom if it only lacks capacity.

    request: a PlacementRequest. is_new: raise AlreadyExists if the name is in use; otherwise an
    existing guest requests more. filter_names: names of the filters to apply.
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
    """Raise NoRoom if starting this guest would exceed the policy for running guests.

    Only their memory and vCPUs count, not what stopped guests have reserved.
    """
    host = host_facts(conn, admission_config)
    guest = next((host_guest for host_guest in host.guests if host_guest.name == dom.name()), None)
    if guest is not None and guest.state not in facts.ACTIVE and not admission_config.overcommit:
        _check_running(host, facts.of_guest(guest, host), admission_config.policy())


def check_transient(conn: libvirt.virConnect, admission_config: AdmissionConfig, xml: str) -> None:
    """Raise NoRoom if starting this transient guest would exceed the policy for running guests."""
    if not admission_config.overcommit:
        request = request_of(Domain.fromstring(xml))
        _check_running(host_facts(conn, admission_config), request, admission_config.policy())


def _check_running(
    host: facts.Host, request: facts.PlacementRequest, policy: PlacementPolicy
) -> None:
    request = replace(request, stopped=False, disks=())
    policy = replace(host.effective_policy(policy), stopped_ratio=0.0)
    unlimited_host = replace(host, limits={})  # the policy includes them
    rejection = choose.admits(unlimited_host, request, policy, only_filters=("vcpu", "memory"))
    if rejection:
        raise errors.NoRoom(
            f"{host.name}: {rejection[1]}: stop another guest, move this one, or start it anyway "
            "with overcommit=True"
        )


def request_of(
    definition: Domain, builds: Collection[disk_build.DiskBuild] = ()
) -> facts.PlacementRequest:
    """Return the PlacementRequest for the Domain of a guest.

    builds: the DiskBuilds of its disks.
    """
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
        # VMware uses port groups instead
        bridges=frozenset(
            source
            for kind, source in sources
            if kind == "bridge" and source and definition.type != "vmware"
        ),
        networks=frozenset(source for kind, source in sources if kind == "network" and source),
        pools=disks.pool_bytes(builds),
        cpu_model=definition.cpu.model if definition.cpu.mode == "custom" else None,
    )
