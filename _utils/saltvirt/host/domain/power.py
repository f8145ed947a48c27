"""A guest that is started, stopped or paused by its name: may it be done here, and what became of
it. Both in the job that does it, so that the master asks nothing more."""

from __future__ import annotations

import contextlib

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lifecycle, lookup
from saltvirt.host.migration import move_journal, recovery
from saltvirt.placement import facts


def before(conn: libvirt.virConnect, name: str, last_seen: bool) -> str | None:
    """The guest's state, None where there is none of the name.

    last_seen: no other host was asked for it. One that is off, or moves, may be on another: of it
    None as well.
    """
    dom = lookup.find(conn, name)
    if dom is None or (last_seen and not _surely_here(dom)):
        return None
    return lookup.state(dom)


def after(conn: libvirt.virConnect, name: str) -> str:
    """Its state now. A transient one that is off is gone."""
    dom = lookup.find(conn, name)
    return lookup.state(dom) if dom else "shutdown"


def resume(dom: libvirt.virDomain) -> bool:
    """Lets it run on. Raises OperationFailed for one that waits for the target of a migration that
    was broken off: it may run there."""
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
    """Whether libvirt works at something with it. A driver that knows no jobs moves nothing."""
    is_busy = False
    with contextlib.suppress(errors.Unsupported), translated():
        is_busy = recovery.has_job(dom)
    return is_busy
