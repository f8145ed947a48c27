"""Export the disks of a guest that is off through QEMU's storage daemon, read-only. QEMU's locks on
files prevent a start meanwhile."""

from __future__ import annotations

import contextlib

from saltvirt.backup.export import checkpoints, running
from saltvirt.backup.export.inspect_guest import source_path
from saltvirt.backup.export.request import ServeRequest, exports_path
from saltvirt.backup.model import record
from saltvirt.backup.model.answers import GuestInspection, ServedDisk
from saltvirt.backup.target import daemon
from saltvirt.host.connection import libvirt
from saltvirt.host.storage.unchanged_disks import UnchangedDisks
from saltvirt.xml.domain.domain import Domain


def begin(
    conn: libvirt.virConnect,
    dom: libvirt.virDomain,
    inspection: GuestInspection,
    request: ServeRequest,
    locks: contextlib.ExitStack,
) -> tuple[list[ServedDisk], daemon.StorageDaemon]:
    """Return the exported disks and the daemon. locks: of the disks that the daemon does not lock.
    Raises OperationFailed, Unsupported."""
    plan = {disk.target: disk for disk in running.match_plan(inspection, request)}
    disks = {str(disk.target): disk for disk in Domain.fromstring(dom.XMLDesc(0)).disks}
    paths = {disk.target: source_path(conn, disks[disk.target]) for disk in inspection.disks}
    # QEMU tolerates writers to a raw image
    raw = [disk.target for disk in inspection.disks if disk.format == record.RAW]
    exclusive = [paths[target] for target in raw if not disks[target].shareable]
    locks.enter_context(UnchangedDisks(request.guest, exclusive))
    created = checkpoints.make(conn, dom, inspection, request.backup_id)
    shown = [
        daemon.ExportedDisk(paths[disk.target], disk.format, disk.target, plan[disk.target].since)
        for disk in inspection.disks
    ]
    served_disks = [
        running.describe_export(
            disk, plan[disk.target], plan[disk.target].since, created.get(disk.target)
        )
        for disk in inspection.disks
    ]
    return served_disks, daemon.begin(shown, exports_path(request.guest))


def is_started(dom: libvirt.virDomain) -> bool:
    """Whether the guest was started.

    A QEMU that libvirt is starting may not have opened the disks yet: it fails because of their
    locks, unless the export ends before that.
    """
    state: list[int] = dom.state()
    starting = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]
    return state[0] != libvirt.VIR_DOMAIN_SHUTOFF and state != starting
