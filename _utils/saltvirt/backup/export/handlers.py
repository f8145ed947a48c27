"""What a hypervisor answers to the master's calls about backups."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from saltvirt import names, settings, units
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.answers.created import CreatedGuest
from saltvirt.backup.export import request as export_request
from saltvirt.backup.model import calls as backup_calls
from saltvirt.backup.model.answers import (
    GuestInspection,
    InPlaceCheck,
    RestoredDisk,
    Serving,
    ShownBackup,
)
from saltvirt.backup.model.pins import LiveRestoreStatus
from saltvirt.backup.target.handlers import ONE_TIME_KEYS, endpoint, library, reader_pair
from saltvirt.fleet.minion import client, files
from saltvirt.host import connection
from saltvirt.host.domain import guest_lock
from saltvirt.host.node import job_steps
from saltvirt.pki.host import own_pair
from saltvirt.pki.host.own_pair import OwnPair
from saltvirt.spec import deploy, values

if TYPE_CHECKING:
    from saltvirt.backup.export import live_restore_build
    from saltvirt.host.provision.guest_builder import GuestRequest, Tools

_VERB = "backup_restore"


def _connect(host: MinionContext) -> contextlib.AbstractContextManager[Any]:
    return connection.connect(settings.connection(host.config, {}))


@handles(backup_calls.INSPECT_GUEST)
def inspect_guest(host: MinionContext, request: backup_calls.InspectRequest) -> GuestInspection:
    """Return which disks of a guest can be backed up. Raises NotFound."""
    from saltvirt.backup.export import inspect_guest as inspection  # noqa: PLC0415 - needs the binding

    with _connect(host) as conn:
        return inspection.inspect(conn, names.existing_guest(request.name))


@handles(backup_calls.BEGIN_EXPORT)
def begin_export(host: MinionContext, request: backup_calls.BeginRequest) -> Serving:
    """Export the disks of a guest, as they are at one moment, until ``virt.backup_end``.

    Raises OperationFailed; in this case nothing is exported.
    """
    from saltvirt.backup.export import api  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    local = settings.connection(host.config, {})
    config = export_request.load_config(host.config, host.opts["id"])
    serve_request = export_request.ServeRequest(
        guest=names.existing_guest(request.name),
        backup_id=values.text(request.backup_id, "backup_id"),
        disks=request.disks,
        uri=local.uri,
        username=local.username,
        password=local.password,
        locks=guest_lock.folder(host.config),
        scratch=config.scratch,
        host=config.host,
        endpoint=endpoint(config, request.reader),
        scratch_mib=config.scratch_mib,
    )
    with _connect(host) as conn:
        return api.begin(library(), conn, serve_request)


@handles(backup_calls.RESTORE_GUEST)
def restore_guest(host: MinionContext, request: backup_calls.RestoreGuestRequest) -> CreatedGuest:
    """Create a guest from an exported backup, or nothing at all.

    Raises AlreadyExists for the name or a disk file, Refused if the host lacks capacity or if the
    existing guest cannot be replaced, OperationFailed.
    """
    from saltvirt.backup.export import (  # noqa: PLC0415 - needs the binding
        in_place_restore,
        live_restore_build,
        restore,
    )

    guest, tools = _restore_inputs(host, request)
    shown, is_copy = request.shown, not (request.itself or request.in_place)
    if is_copy:
        guest.seed = shown.seeded if request.seed is None else request.seed
    limit = None
    if request.bandwidth is not None:
        limit = units.parse_count(request.bandwidth, "bandwidth")
    reading = reader_pair(request.reader, shown.authority, "shown")
    with _connect(host) as conn, reading as (pair, folder):
        parts = conn, guest, tools, shown, folder
        if request.instant:
            guest.start = True
            live: live_restore_build.LiveRestoreBuilder
            if request.in_place:
                live = live_restore_build.LiveInPlaceRestore(*parts, request.stop, request.disk)
            else:
                live = live_restore_build.LiveRestoreBuilder(*parts, request.itself)
            live.options = _live_options(host, guest.name, pair, limit)
            return live.run()
        if request.in_place:
            return in_place_restore.InPlaceRestore(*parts, request.stop, request.disk).run()
        created = restore.RestoreBuilder(*parts, request.itself).run()
    return _with_key(host, created)


def _live_options(
    host: MinionContext, guest: str, pair: OwnPair, bandwidth: int | None
) -> live_restore_build.LiveRestoreOptions:
    from saltvirt.backup.export import (  # noqa: PLC0415 - needs the binding
        live_restore_build,
        live_restore_server,
    )

    request = live_restore_server.make_request(host.config, guest, pair.certificate, pair.key)
    return live_restore_build.LiveRestoreOptions(library(), request, bandwidth)


def _with_key(host: MinionContext, created: CreatedGuest) -> CreatedGuest:
    """Submit the key of a seeded guest to the master; warn if the master has not accepted it."""
    if not created.pub_key or host.opts.get("file_client") == "local":
        return created
    if client.submit_key(host.functions, created.name, created.pub_key):
        return created
    warning = client.pending_key_note(created.name, host.opts["id"])
    return dataclasses.replace(created, warnings=(*created.warnings, warning))


@handles(backup_calls.RESTORE_DISK)
def restore_disk(host: MinionContext, request: backup_calls.RestoreDiskRequest) -> RestoredDisk:
    """Copy one disk of an exported backup to a file that no guest has, or nothing at all.

    Raises NotFound if the backup does not contain the disk, Refused, OperationFailed.
    """
    from saltvirt.backup.export import in_place_restore, restore  # noqa: PLC0415 - needs the binding

    guest, tools = _restore_inputs(host, request)
    reading = reader_pair(request.reader, request.shown.authority, "shown")
    with _connect(host) as conn, reading as (_, folder):
        builder = restore.RestoreBuilder(conn, guest, tools, request.shown, folder, True)
        return in_place_restore.one_disk(conn, tools, guest.name, builder, request.disk)


def _restore_inputs(
    host: MinionContext, request: backup_calls.RestoreGuestRequest | backup_calls.RestoreDiskRequest
) -> tuple[GuestRequest, Tools]:
    from saltvirt.host.provision import admission, guest_builder, guest_tools  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    terms = None if request.placement is None else request.placement.to_answer()
    config = admission.config_of(
        host.config, {"placement": terms, "overcommit": request.overcommit}
    )
    guest = guest_builder.GuestRequest(names.guest(request.name))
    minion_tools = guest_tools.MinionTools(
        host.functions,
        host.opts,
        client.virtkey(host.functions),
        files.Chunks(dict(host.opts)).read,
    )
    tools = minion_tools.tools(guest.name, deploy.DeploySpec.parse({}, _VERB), config, _VERB)
    tools.report_step = _step_sender(host, guest.name)
    return guest, tools


def _step_sender(host: MinionContext, guest: str) -> Any:
    """Return a function that sends steps: ``salt/virt/<name>/backup_restore/<step>``."""
    steps_dir = job_steps.folder(host.config)

    def send(step: str, message: str, /, within_s: float = 0, **data: Any) -> None:
        job_steps.record_step(steps_dir, within_s)
        event = {"id": guest, "message": message, **data}
        tag = f"salt/virt/{guest}/{_VERB}/{step}"
        job_steps.send_step(host.functions["event.send"], tag, event)

    return send


@handles(backup_calls.CHECK_IN_PLACE)
def check_in_place(host: MinionContext, request: backup_calls.InPlaceCheckRequest) -> InPlaceCheck:
    """Return what prevents a backup from replacing a guest. Raises NotFound."""
    from saltvirt.backup.export import in_place_restore  # noqa: PLC0415 - needs the binding

    with _connect(host) as conn:
        return in_place_restore.inspect(conn, names.existing_guest(request.name), request.stop)


@handles(backup_calls.SET_SCHEDULE)
def set_schedule(host: MinionContext, request: backup_calls.ScheduleRequest) -> str | None:
    """Set the backup setting of a guest, and return the previous one.

    Raises NotFound, and Unsupported if Salt Virt has not created the guest.
    """
    from saltvirt.backup.export import guest_schedule  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    guest, lock_dir = names.existing_guest(request.name), guest_lock.folder(host.config)
    with guest_lock.acquire(lock_dir, "virt.backup_wish", guest), _connect(host) as conn:
        return guest_schedule.set_schedule(conn, guest, request.setting, request.test)


@handles(backup_calls.LIVE_RESTORE_STATUS)
def live_restore_status(
    host: MinionContext, request: backup_calls.LiveRestoreRequest
) -> LiveRestoreStatus:
    """Return how far the live restore of a guest is.

    Raises OperationFailed while the guest is being created.
    """
    from saltvirt.backup.export import live_restore_build  # noqa: PLC0415 - needs the binding

    name, locks = names.existing_guest(request.name), guest_lock.folder(host.config)
    with _connect(host) as conn:
        return live_restore_build.read_status(conn, name, locks)


@handles(backup_calls.RESUME_LIVE_RESTORE)
def resume_live_restore(
    host: MinionContext, request: backup_calls.ResumeRequest
) -> LiveRestoreStatus:
    """Resume an interrupted live restore, and return its status.

    Raises NotFound if the guest does not run from a backup here, BadAnswer if another backup is
    exported, InvalidInput if the reader was not issued here or has been used.
    """
    from saltvirt.backup.export import live_restore_build  # noqa: PLC0415 - needs the binding

    connection.require_binding()
    guest = names.existing_guest(request.name)
    authority = own_pair.authority(request.shown.authority, "shown")
    trusted: ShownBackup = dataclasses.replace(request.shown, authority=authority)
    with _connect(host) as conn:
        pair = own_pair.take(ONE_TIME_KEYS, request.reader, "reader")
        options = _live_options(host, guest, pair, request.bandwidth)
        return live_restore_build.resume(conn, options, guest, trusted)
