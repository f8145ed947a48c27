"""A hand on a migration that runs."""

from __future__ import annotations

import contextlib
import time

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.migration import move_journal

_WAIT_S = 30


def _outgoing(dom: libvirt.virDomain) -> bool:
    """Whether libvirt is moving the domain away at this moment."""
    with contextlib.suppress(libvirt.libvirtError):  # it is off, or gone
        stats = dom.jobStats()
        outgoing = stats.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        return outgoing and stats.get("type") in (1, 2)
    return False


def _nothing(conn: libvirt.virConnect, name: str) -> errors.OperationFailed:
    return errors.OperationFailed(f"{name} is not being migrated from {conn.getHostname()}")


def abort(conn: libvirt.virConnect, name: str, journals: str = move_journal.FOLDER) -> bool:
    """Ends the migration; True once nothing of it is at work any more.

    While disks are copied by us, and not by libvirt, the process that does it is asked to.
    """
    journal = move_journal.MigrationJournal(journals, name)
    with translated(f"abort the migration of {name}"):
        dom = lookup.lookup(conn, name)
        is_active = move_journal.at_work(journal)
        if not is_active and not _outgoing(dom):
            raise _nothing(conn, name)
        if is_active:
            journal.request_abort()
        deadline = time.monotonic() + _WAIT_S
        while _abort_job(dom, journal):
            if time.monotonic() > deadline:
                raise errors.OperationFailed(
                    f"{name}: the command was taken, but it still migrates after {_WAIT_S} s"
                )
            time.sleep(0.2)
        if lookup.find(conn, name) is None:
            raise errors.OperationFailed(f"{name} was moved before its migration could be ended")
    return True


def _abort_job(dom: libvirt.virDomain, journal: move_journal.MigrationJournal) -> bool:
    """Ends libvirt's part, whenever it begins; whether anything is at work."""
    outgoing = _outgoing(dom)
    if outgoing:
        with contextlib.suppress(libvirt.libvirtError):  # it has just ended by itself
            dom.abortJob()
    return outgoing or move_journal.at_work(journal)


def start_postcopy(conn: libvirt.virConnect, name: str) -> bool:
    """Lets the guest run on the target before its memory is all there."""
    with translated(f"start post-copy of {name}"):
        dom = lookup.lookup(conn, name)
        if not _outgoing(dom):
            raise _nothing(conn, name)
        dom.migrateStartPostCopy()
    return True
