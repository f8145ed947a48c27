"""Start, stop or pause a guest by its name: whether it may be done on this host, and the resulting
state. Both are part of one job, so that the master needs no further request."""

from __future__ import annotations

import contextlib

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lifecycle, lookup
from saltvirt.host.migration import move_journal, recovery
from saltvirt.placement import facts


def before(conn: libvirt.virConnect, name: str, last_seen: bool) -> str | None:
    """Return the guest's state, None if no guest has the name.

    last_seen: no other host was queried. A guest that is off or moving may be on another host: the
    result is None as well.
    """
    dom = lookup.find(conn, name)
    if dom is None or (last_seen and not _surely_here(dom)):
        return None
    return lookup.state(dom)


def after(conn: libvirt.virConnect, name: str) -> str:
    """Return the current state. A transient guest that is off is gone."""
    dom = lookup.find(conn, name)
    return lookup.state(dom) if dom else "shutdown"


def resume(dom: libvirt.virDomain) -> bool:
    """Resume the guest. Raises OperationFailed if the guest waits for the target of an interrupted
    migration, because it may run there."""
    with translated():
        source = recovery.side(dom)
    if source.is_waiting or source.split:
        move_journal.require_startable(dom)
    return lifecycle.resume(dom)


def _surely_here(dom: libvirt.virDomain) -> bool:
    migrated_state = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
    with translated():
        return (
            lookup.state(dom) in facts.ACTIVE
            and dom.state() != migrated_state
            and dom.name() not in move_journal.names()
            and not _has_job(dom)
        )


def _has_job(dom: libvirt.virDomain) -> bool:
    """Return whether libvirt runs a job for the domain. A driver without jobs does not migrate."""
    is_busy = False
    with contextlib.suppress(errors.Unsupported), translated():
        is_busy = recovery.has_job(dom)
    return is_busy
