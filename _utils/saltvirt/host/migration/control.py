"""Control a running migration."""

from __future__ import annotations

import contextlib
import time

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.migration import move_journal

_WAIT_S = 30


def _outgoing(dom: libvirt.virDomain) -> bool:
    """Return whether libvirt is migrating the domain away now."""
    with contextlib.suppress(libvirt.libvirtError):  # the domain is off, or gone
        stats = dom.jobStats()
        outgoing = stats.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
        return outgoing and stats.get("type") in (1, 2)
    return False


def _nothing(conn: libvirt.virConnect, name: str) -> errors.OperationFailed:
    return errors.OperationFailed(f"{name} is not being migrated from {conn.getHostname()}")


def abort(conn: libvirt.virConnect, name: str, journals: str = move_journal.FOLDER) -> bool:
    """Abort the migration; True once no part of it is running.

    If Salt Virt copies disks, rather than libvirt, the process that copies is asked to stop.
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
                    f"{name}: the request was accepted, but the guest is still migrating after "
                    f"{_WAIT_S} s"
                )
            time.sleep(0.2)
        if lookup.find(conn, name) is None:
            raise errors.OperationFailed(
                f"{name} was migrated before its migration could be aborted"
            )
    return True


def _abort_job(dom: libvirt.virDomain, journal: move_journal.MigrationJournal) -> bool:
    """Abort libvirt's part whenever it starts; return whether any part is still running."""
    outgoing = _outgoing(dom)
    if outgoing:
        with contextlib.suppress(libvirt.libvirtError):  # the job has just ended by itself
            dom.abortJob()
    return outgoing or move_journal.at_work(journal)


def start_postcopy(conn: libvirt.virConnect, name: str) -> bool:
    """Start the guest on the target before all its memory is there."""
    with translated(f"start post-copy of {name}"):
        dom = lookup.lookup(conn, name)
        if not _outgoing(dom):
            raise _nothing(conn, name)
        dom.migrateStartPostCopy()
    return True
