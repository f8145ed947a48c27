"""What a hypervisor answers to the master's calls about backups."""

from __future__ import annotations

import dataclasses

import saltvirt
from saltvirt import names, settings
from saltvirt.answers.calls import MinionContext, handles
from saltvirt.backup.model import calls as backup_calls
from saltvirt.backup.model.pins import LiveRestoreStatus
from saltvirt.host import connection, paths
from saltvirt.host.domain import guest_lock
from saltvirt.pki.host import own_pair

_ONE_TIME_KEYS = f"{paths.STATE}/backup-readers"


@handles(backup_calls.LIVE_RESTORE_STATUS)
def live_restore_status(
    host: MinionContext, request: backup_calls.LiveRestoreRequest
) -> LiveRestoreStatus:
    """Return how far the live restore of a guest is.

    Raises OperationFailed while the guest is being created.
    """
    from saltvirt.backup.export import live_restore_build  # noqa: PLC0415 - needs the binding

    name, locks = names.existing_guest(request.name), guest_lock.folder(host.config)
    with connection.connect(settings.connection(host.config, {})) as conn:
        return live_restore_build.read_status(conn, name, locks)


@handles(backup_calls.RESUME_LIVE_RESTORE)
def resume_live_restore(
    host: MinionContext, request: backup_calls.ResumeRequest
) -> LiveRestoreStatus:
    """Resume an interrupted live restore, and return its status.

    Raises NotFound if the guest does not run from a backup here, BadAnswer if another backup is
    exported, InvalidInput if the reader was not issued here or has been used.
    """
    from saltvirt.backup.export import (  # noqa: PLC0415 - needs the binding
        live_restore_build,
        live_restore_server,
    )

    connection.require_binding()
    guest = names.existing_guest(request.name)
    authority = own_pair.authority(request.shown.authority, "shown")
    trusted = dataclasses.replace(request.shown, authority=authority)
    with connection.connect(settings.connection(host.config, {})) as conn:
        pair = own_pair.take(_ONE_TIME_KEYS, request.reader, "reader")
        server = live_restore_server.make_request(
            host.config, {}, guest, pair.certificate, pair.key
        )
        options = live_restore_build.LiveRestoreOptions(
            next(iter(saltvirt.__path__)), server, request.bandwidth
        )
        return live_restore_build.resume(conn, options, guest, trusted)
