"""What a hypervisor answers to the master's calls about guests and their storage."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from saltvirt import errors, names, settings, units
from saltvirt.answers import guest_calls, host_calls
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.answers.guests import Leftovers, MigrationFacts
from saltvirt.answers.power import PowerChange
from saltvirt.answers.removal import VolumeRemoval
from saltvirt.host import connection, hooks
from saltvirt.host.domain import (
    creation,
    guest_lock,
    lifecycle,
    lookup,
    names_on_disk,
    pending_changes,
    reboot,
)
from saltvirt.host.domain import power as host_power
from saltvirt.host.network import host_addresses
from saltvirt.host.node import job_steps, maintenance
from saltvirt.host.provision import images_folder
from saltvirt.host.storage import sharing
from saltvirt.migration import calls as migration_calls
from saltvirt.migration import incoming_address
from saltvirt.pki.host import validity
from saltvirt.placement import calls as placement_calls
from saltvirt.placement import facts
from saltvirt.spec import guest, profiles, values
from saltvirt.system import mount_guard

log = logging.getLogger(__name__)

_ACTS: dict[str, Callable[[Any], object]] = {
    "stop": lifecycle.stop,
    "pause": lifecycle.pause,
    "resume": host_power.resume,
    "reset": lifecycle.reset,
}
_VERBS = ("start", "shutdown", "reboot", *_ACTS)


def _connect(host: MinionContext) -> AbstractContextManager[Any]:
    return connection.connect(settings.connection(host.config, {}))


@handles(placement_calls.POWER)
def change_power(host: MinionContext, request: placement_calls.PowerRequest) -> PowerChange:
    """Perform a verb on a guest if it is in one of the states. Raises OperationFailed, NoRoom."""
    verb, name = values.choice(*_VERBS)(request.verb, "verb"), names.existing_guest(request.name)
    timeout_s = units.parse_number(request.timeout or 0, "timeout")
    with _connect(host) as conn:
        with guest_lock.acquire(guest_lock.folder(host.config), f"virt.{verb}", name):
            before = host_power.before(conn, name, request.last_seen)
            if before not in request.states:
                return PowerChange(before)
            if verb == "start":
                _start(host, conn, request)
            elif verb in _ACTS:
                _ACTS[verb](lookup.lookup(conn, name))
        # without the lock, so that the guest can be powered off meanwhile
        steps_dir, pending = job_steps.folder(host.config), list[str]()
        if verb == "shutdown":
            dom = lookup.lookup(conn, name)
            lifecycle.off_within(dom, timeout_s, lambda: job_steps.record_step(steps_dir))
        elif verb == "reboot":
            reboot.reboot(conn, name, timeout_s, lambda: job_steps.record_step(steps_dir))
            pending = pending_changes.for_domains(conn, name)[name]
        return PowerChange(before, host_power.after(conn, name), tuple(pending))


def _start(host: MinionContext, conn: Any, request: placement_calls.PowerRequest) -> None:
    from saltvirt.host.provision import admission, start  # noqa: PLC0415 - needs the binding

    config = admission.config_for(host.config, request.placement, request.overcommit)
    with config.lock():
        dom = lookup.lookup(conn, request.name)
        creation.require_complete(dom, "start")
        start.start(dom, config)


@handles(placement_calls.INVENTORY)
def read_inventory(
    host: MinionContext, request: placement_calls.InventoryRequest
) -> facts.Inventory:
    """Return the capacity of the host, the sizes of its guests, and the needs of a new guest.

    libvirt is read in bulk; no disk is opened. Raises ConnectionFailed.
    """
    from saltvirt.host.node import inventory  # noqa: PLC0415 - needs the binding

    location = images_folder.configured(host.config)
    with _connect(host) as conn:
        answer = inventory.read(conn, host.config, location.folder)
        needs = _needs(host, conn, location, request.guest) if request.guest else None
    return dataclasses.replace(answer, guest=needs)


def _needs(
    host: MinionContext, conn: Any, location: images_folder.ImagesFolder, arguments: dict[str, Any]
) -> facts.Needs:
    """The needs of a guest with these arguments of ``virt.init``, or the problem."""
    from saltvirt.host.provision import (  # noqa: PLC0415 - needs the binding
        admission,
        guest_builder,
        requirements,
    )

    try:
        if "name" not in arguments:
            raise errors.InvalidInput("guest must contain a name")
        guest.refuse_unknown({k: v for k, v in arguments.items() if k != "name"})
        spec = guest.parse(**arguments, known_profiles=profiles.read(host.config))
        config = admission.AdmissionConfig(host.config, location.folder, location.pool)
        # nothing is seeded; only the ability to seed matters
        not_yet = guest_builder.refuse_seeding
        medium = not_yet if spec.deploy.cloud_init else None
        tools = guest_builder.Tools(config, seeder=not_yet, medium=medium)
        return requirements.read(conn, spec, tools)
    except errors.VirtError as exc:
        return facts.Needs(problem=exc.text.removeprefix(errors.Refused.PREFIX))


@handles(guest_calls.LIST_LEFTOVERS)
def list_leftovers(host: MinionContext, _request: guest_calls.HostRequest) -> Leftovers:
    """Return what interrupted operations have left on the host. Changes nothing."""
    from saltvirt.host.provision import leftovers  # noqa: PLC0415 - needs the binding

    with _connect(host) as conn:
        report = leftovers.read(conn, guest_lock.folder(host.config))
    backups = [name for feature in hooks.installed() for name in feature.interrupted_guests()]
    return dataclasses.replace(report, backups=tuple(backups))


@handles(guest_calls.NAMES_ON_DISK)
def list_names_on_disk(host: MinionContext, _request: guest_calls.HostRequest) -> list[str]:
    """Return the names of all guests in libvirt's own files: libvirt need not answer.

    Raises Unsupported if libvirt stores them elsewhere.
    """
    return names_on_disk.read(settings.connection(host.config, {}).uri)


@handles(guest_calls.SHARED_DISKS)
def list_shared_disks(
    host: MinionContext, request: guest_calls.NamedGuestRequest
) -> dict[str, str]:
    """Return the disks of a guest that other hosts may have, with the reasons. Raises NotFound."""
    from saltvirt.host.storage import shared_writable  # noqa: PLC0415 - needs the binding

    with _connect(host) as conn:
        return shared_writable.shared_disks(lookup.lookup(conn, request.vm_))


@handles(guest_calls.STORAGE_USERS)
def list_storage_users(
    host: MinionContext, request: guest_calls.StorageUsersRequest
) -> dict[str, str | None]:
    """Return the reason to keep each file on shared storage. Raises InvalidInput."""
    from saltvirt.host.provision import admission  # noqa: PLC0415 - needs the binding
    from saltvirt.host.storage import usage  # noqa: PLC0415 - needs the binding

    read = sharing.FileIdentity.from_answer
    try:
        identities = [read(identity, "places") for identity in request.places.values()]
    except errors.BadAnswer as exc:
        raise errors.InvalidInput(exc.text) from exc
    images = admission.AdmissionConfig.configured(host.config).images_dir
    with _connect(host) as conn:
        return usage.users_here(conn, identities, images)


@handles(host_calls.REMOVE_VOLUME)
def remove_volume(host: MinionContext, request: host_calls.VolumeRequest) -> VolumeRemoval:
    """Delete a volume that is not used, or report what keeps it. Raises NotFound, InvalidInput."""
    from saltvirt.host.storage import volumes  # noqa: PLC0415 - needs the binding

    with _connect(host) as conn:
        if request.test:
            return volumes.removal_plan(conn, request.pool, request.volume)
        return volumes.remove(conn, request.pool, request.volume, request.unused)


@handles(migration_calls.LOCATIONS)
def list_locations(host: MinionContext, _request: guest_calls.HostRequest) -> MigrationFacts:
    """Return the guests of the host, and whether it accepts more."""
    from saltvirt.host.migration import (  # noqa: PLC0415 - needs the binding
        move_journal,
        target_leftovers,
    )

    with _connect(host) as conn:
        guests, uuids = lookup.states(conn), lookup.uuids(conn)
    return MigrationFacts(
        guests=guests,
        uuids=uuids,
        unfinished=tuple(move_journal.names()),
        target_leftovers=tuple(target_leftovers.names()),
        ratios=settings.option(host.config, "ratios", {}),
        limits=settings.option(host.config, "placement", {}),
        address=_address(host),
        certificates=validity.local_certificates(host.opts["id"]),
        maintenance=maintenance.reason(),
        unmounted=tuple(mount_guard.unmounted_points()),
    )


def _address(host: MinionContext) -> str | None:
    """Return the migration address of the host; an invalid setting does not prevent the answer
    about its guests."""
    configured = settings.option(host.config, "migration:address")
    try:
        return incoming_address.advertised(configured, host_addresses.global_addresses)
    except errors.InvalidInput as exc:
        log.warning("%s", exc)
        return None
