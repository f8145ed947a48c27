"""A guest that is off: its disks shown read-only by QEMU's storage daemon, which QEMU's own locks
keep a start away from."""

from __future__ import annotations

from saltvirt.backuphost import daemon
from saltvirt.backups.answers import GuestLook, LookedDisk, PlannedDisk, ServedDisk
from saltvirt.backupserve import checkpoints, running
from saltvirt.backupserve import look as looks
from saltvirt.backupserve.request import ServeRequest, exports_of
from saltvirt.host.connection import libvirt
from saltvirt.xml.domain import Domain


def begin(
    conn: libvirt.virConnect,
    dom: libvirt.virDomain,
    look: GuestLook,
    request: ServeRequest,
) -> tuple[list[ServedDisk], daemon.Server]:
    """What is served, and what serves it. Raises OperationFailed, Unsupported."""
    plan = {one.target: one for one in running.plan_of(look, request)}
    disks = {str(one.target): one for one in Domain.fromstring(dom.XMLDesc(0)).disks}
    made = checkpoints.make(conn, dom, look, request.ident)
    shown = [
        daemon.Shown(
            looks.path(conn, disks[one.target]), one.format, one.target, plan[one.target].since
        )
        for one in look.disks
    ]
    served = [_served(one, plan[one.target], made) for one in look.disks]
    return served, daemon.begin(shown, exports_of(request.guest))


def _served(disk: LookedDisk, plan: PlannedDisk, made: dict[str, str]) -> ServedDisk:
    return ServedDisk(
        target=disk.target,
        size_bytes=disk.size_bytes,
        source=disk.source,
        export=disk.target,
        contexts=(f"qemu:dirty-bitmap:{plan.since}",) if plan.since else (),
        parent=plan.parent,
        reason=plan.reason,
        checkpoint=made.get(disk.target),
    )
