"""Recover from a failed or killed migration: find the host that has the guest, and clean up."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.answers.migration import RecoveryResult
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, skip_undefined, translated
from saltvirt.host.domain import checkpoints, lookup, removal, snapshot_state
from saltvirt.host.migration import confirm, departures, facts, reservations, target_leftovers
from saltvirt.host.migration.move_journal import MigrationJournal
from saltvirt.migration import journal, outcome, transport
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry, TargetFiles

if TYPE_CHECKING:
    from saltvirt.host.migration.job import MigrationJob

# seconds to retry if a host does not answer, or libvirt is still migrating
PATIENCE_S = 60
MOVED, UNDONE, NOTHING = outcome.MOVED, outcome.UNDONE, "nothing"

# virDomainPausedReason: waiting for the other end of a migration, or starting up
_BY_MIGRATION = (2, 11)
# post-copy, active or failed: virDomainPausedReason and virDomainRunningReason
_SPLIT = {outcome.PAUSED: (12, 13), outcome.RUNNING: (10, 11)}


def side(dom: libvirt.virDomain | None) -> outcome.Side:
    """Return a host's state of the guest; dom may be None."""
    if dom is None:
        return outcome.Side()
    code, reason = dom.state()
    state = lookup.state_name(code)
    waits = state == outcome.PAUSED and reason in _BY_MIGRATION
    return outcome.Side(state, waits, reason in _SPLIT.get(state, ()))


def _source(source_dom: libvirt.virDomain | None, report: GuestReport) -> outcome.Side:
    """Return the source's state of the guest; report: from the beginning of the migration."""
    source_side = side(source_dom)
    if source_dom is None or not source_side.alive or report.process is None:
        return source_side
    return replace(source_side, restarted=facts.process(source_dom) != report.process)


def resolve(conn: libvirt.virConnect, peer: libvirt.virConnect, report: GuestReport) -> str:
    """Ensure that the guest is on one host only; return MOVED or UNDONE.

    Raises MigrationFailed if an operator must decide, ConnectionFailed if one of the hosts cannot
    be queried.
    """
    with translated():
        if not (peer.isAlive() and conn.isAlive()):
            raise errors.ConnectionFailed(
                "the connection to one of the hosts was lost: their state is unknown"
            )
        source_dom = confirm.find(conn, report.uuid)
        target_dom = confirm.find(peer, report.uuid)
        # after persistent=False only the source has a definition
        source_only = target_dom is not None and not target_dom.isPersistent()
        resolution = outcome.decide(
            _source(source_dom, report),
            side(target_dom),
            report.active,
            report.state == outcome.RUNNING,
            source_dom is not None and bool(source_dom.isPersistent()) and not source_only,
        )
        for action in resolution.actions:
            ACTIONS[action](source_dom, target_dom)
    if resolution.outcome == outcome.UNDECIDED:
        raise errors.MigrationFailed(f"{report.name}: {resolution.message}")
    return resolution.outcome


def undefine(dom: libvirt.virDomain) -> None:
    """Undefine the guest on the source, with its firmware variables.

    Raises MigrationFailed, with the guest defined as before, if it was just started.
    """
    conn, name, guest_uuid = dom.connect(), dom.name(), dom.UUIDString()
    definitions = checkpoints.texts(dom)
    xml = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    if dom.isActive():
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} in the meantime")
    with removal.variables(conn, dom) as nvram:
        removal.ask(dom, _undefine_flags(dom, removal.tpm(conn, dom), "MANAGED_SAVE", nvram))
    if confirm.find(conn, guest_uuid) is not None:
        checkpoints.redefine(conn.defineXML(xml), definitions)
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} in the meantime")
    snapshot_state.forget_all(guest_uuid)


def _undefine_flags(dom: libvirt.virDomain, tpm: str | None, *names: str) -> list[int]:
    """Return the flags for the names of VIR_DOMAIN_UNDEFINE_*, with those for snapshots and
    checkpoints; not every driver supports the latter. tpm: from removal.tpm. Hosts whose libvirt
    lacks KEEP_TPM cannot share TPM state."""
    metadata = ["SNAPSHOTS_METADATA", *(["CHECKPOINTS_METADATA"] if checkpoints.texts(dom) else [])]
    flags = sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in (*names, *metadata))
    keep = getattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM", 0) if tpm == "KEEP_TPM" else 0
    return [flags | keep, flags]


def _end(dom: libvirt.virDomain, tpm: str | None) -> None:
    """Remove a copy that never ran. tpm: the result of removal.tpm for the guest beside it."""
    if side(dom).alive:
        raise errors.OperationFailed(
            f"{dom.name()} was started just now: the hosts are queried again"
        )
    if dom.isActive():
        dom.destroy()
    with skip_undefined():  # a transient domain is gone by now
        removal.ask(dom, _undefine_flags(dom, tpm, "KEEP_NVRAM"))


ACTIONS: dict[str, Callable[[Any, Any], object]] = {
    outcome.END_SOURCE: lambda source_dom, target_dom: source_dom.destroy(),
    outcome.FORGET_SOURCE: lambda source_dom, target_dom: undefine(source_dom),
    outcome.RESUME_SOURCE: lambda source_dom, target_dom: source_dom.resume(),
    outcome.END_TARGET: lambda source_dom, target_dom: _end(
        target_dom, removal.tpm(source_dom.connect(), source_dom)
    ),
    outcome.PAUSE_TARGET: lambda source_dom, target_dom: target_dom.suspend(),
    outcome.PAUSE_SOURCE: lambda source_dom, target_dom: source_dom.suspend(),
}


def recover(
    conn: libvirt.virConnect,
    journal: MigrationJournal,
    job: MigrationJob,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> RecoveryResult:
    """End the migration in the journal. The outcome is MOVED or UNDONE, or NOTHING if only a
    reservation had to be released. elsewhere: see moved_elsewhere. removed: an operator declares
    that the guest was removed; if neither host has it, the outcome is REMOVED.

    Raises OperationFailed while libvirt is still migrating, MigrationFailed if an operator must
    decide, ConnectionFailed if the target cannot be queried.
    """
    entry = journal.require_entry()
    with translated():
        if entry.completed:
            return _finish_completed(journal, job, entry)
        if _is_replaced(conn, entry.report):
            return _end_replaced(journal, job, entry)
        not_at_work(conn, entry)
        with connect_target(job, entry.target) as peer:
            result = _end_elsewhere(conn, peer, entry, elsewhere)
            if result is None and _is_on_neither(conn, peer, entry):
                result = _end_removed(peer, entry, removed, journal.path)
            result = result or _settle(conn, peer, entry)
    journal.close()
    return result


def _end_elsewhere(
    conn: libvirt.virConnect,
    peer: libvirt.virConnect,
    entry: JournalEntry,
    elsewhere: Collection[str],
) -> RecoveryResult | None:
    """As moved_elsewhere, and clean the target. None if the target has the guest."""
    is_absent = confirm.find(peer, entry.report.uuid) is None
    result = moved_elsewhere(conn, entry, elsewhere) if is_absent else None
    if result:
        _clean_target(peer, entry)
    return result


def _clean_target(peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Remove what a migration created on the target, which does not have the guest. If the move had
    begun, release only the reservation: other files may be kept on purpose."""
    if entry.phase == journal.PREPARING:
        undo_target(peer, entry.target_files)
    else:
        reservations.release(peer, entry.created)


def moved_elsewhere(
    conn: libvirt.virConnect, entry: JournalEntry, elsewhere: Collection[str]
) -> RecoveryResult | None:
    """Return the end of a migration whose guest is on a third host now, as the master has seen.
    None if that is irrelevant: the guest lives on the source, or no data was sent.

    elsewhere: the other hosts that have a guest of this UUID. Raises MigrationFailed if the source
    has a definition, too, because the guest must not start there.
    """
    report = entry.report
    source_dom = confirm.find(conn, report.uuid)
    is_retained = source_dom is not None and (
        entry.phase == journal.PREPARING or side(source_dom).alive
    )
    if not elsewhere or is_retained or entry.phase == journal.MOVED:
        return None
    name, hosts = report.name, ", ".join(sorted(elsewhere))
    if source_dom is not None:
        raise errors.MigrationFailed(
            f"{name} is now on {hosts}, and also defined on {report.host}: keep one, and "
            f"run virt.undefine {name} on the other host, which keeps its disks; then "
            f"salt-run virt.migrate_recover {name}"
        )
    departures.record_departure(name, hosts)
    reason = f"{name} is now on {hosts}: check it there before you delete this file"
    return RecoveryResult(
        name=name, outcome=MOVED, source=report.host, target=hosts, live=report.active,
        retained={} if entry.keep_source else dict.fromkeys(entry.source_files, reason),
    )  # fmt: skip


def _is_on_neither(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> bool:
    """Return whether neither host has the guest. If both had confirmed it on the target, it was
    removed since."""
    domains = [confirm.find(host_conn, entry.report.uuid) for host_conn in (conn, peer)]
    return domains == [None, None] and entry.phase != journal.MOVED


def _end_removed(
    peer: libvirt.virConnect, entry: JournalEntry, removed: bool, path: str
) -> RecoveryResult:
    """Return the end of a migration of a removed guest; its files on the source stay. path: of the
    journal. Raises MigrationFailed unless an operator declares that it was removed."""
    name = entry.report.name
    if not removed:
        instruction = redefine_hint(path, f"salt-run virt.migrate_recover {name} removed=True")
        raise errors.MigrationFailed(
            f"{name} is on neither host, and its disks were not touched: {instruction}"
        )
    _clean_target(peer, entry)
    retained = dict.fromkeys(entry.source_files, f"{name} created this file before it was removed")
    return RecoveryResult(
        name=name, outcome=outcome.REMOVED, source=entry.report.host, retained=retained
    )


def redefine_hint(path: str, end: str = "remove that file") -> str:
    """Return what to do about a guest that no host has. path: of the journal of its migration. end:
    the command that ends the migration if the guest is not needed."""
    return (
        f"its definition is in {path}: define it again from that file; if it was "
        f"removed intentionally, {end}"
    )


def has_job(dom: libvirt.virDomain) -> bool:
    """Return whether libvirt runs a job for the domain, such as a migration."""
    return dom.jobInfo()[0] in (1, 2)


def not_at_work(conn: libvirt.virConnect, entry: JournalEntry) -> None:
    """Raise OperationFailed while libvirt is still migrating the guest."""
    source_dom = confirm.find(conn, entry.report.uuid)
    if source_dom is not None and source_dom.isActive() and has_job(source_dom):
        raise errors.OperationFailed(
            f"libvirt is still migrating {entry.report.name} to {entry.target}: wait for "
            "it, or abort it with virt.migrate_abort"
        )


def _settle(
    conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry
) -> RecoveryResult:
    """Settle where the guest is, and remove what is left of it on the other host."""
    report, source_files, keep_source = entry.report, entry.source_files, entry.keep_source
    deleted: list[str] = []
    retained: dict[str, str] = {}
    lost_checkpoints: dict[str, str] = {}
    has_returned = False
    if entry.phase == journal.MOVED:
        decision, reason = MOVED, _absence_reason(peer, report)
        has_returned = bool(reason) and confirm.find(conn, report.uuid) is not None
        if reason:  # the files on the source may be the last copy
            keep_source, retained = True, dict.fromkeys(source_files, reason)
    else:
        refuse_foreign(conn, peer, entry)
        decision = resolve(conn, peer, report)
    if decision == UNDONE:
        deleted, retained = undo_target(peer, entry.target_files)
        resume_source(conn, report, entry.pause)
    else:
        reservations.release(peer, entry.created)
    if decision == MOVED:
        if entry.phase != journal.MOVED:  # the guest may have been changed, or moved back, since
            confirm.transfer_autostart(conn, peer, report)
        lost_checkpoints = confirm.send_checkpoints(peer, entry)
        if not has_returned:
            departures.record_departure(report.name, peer.getHostname())
    if decision == MOVED and not keep_source:
        deleted, retained = confirm.remove_source(conn, report, source_files)
    return RecoveryResult(
        name=report.name,
        outcome=decision,
        source=report.host,
        target=peer.getHostname(),
        live=report.active,
        deleted=tuple(deleted),
        retained=retained,
        checkpoints_lost=lost_checkpoints or None,
    )


def refuse_foreign(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Raise MigrationFailed if another operation created the guest on the target: it was not sent
    yet, or its copied disks were written to there."""
    report, reason = entry.report, None
    name = report.name
    with translated():
        source_dom, target_dom = confirm.find(conn, report.uuid), confirm.find(peer, report.uuid)
        if source_dom is None or target_dom is None:
            return
        target = peer.getHostname()
        if entry.phase == journal.PREPARING:
            reason = f"{target} has a guest {name} that this migration did not create there"
        else:  # the copies of a running guest are incomplete until libvirt has moved it
            changed_files = target_leftovers.written_since(peer, entry.target_files)
            if changed_files:
                reason = f"{', '.join(changed_files)} on {target}, {target_leftovers.NEWER}"
    if reason:
        raise errors.MigrationFailed(
            f"{reason}: keep one, and run virt.stop and virt.undefine {name} on the other "
            f"host; then salt-run virt.migrate_recover {name}"
        )


def resume_source(conn: libvirt.virConnect, report: GuestReport, step: str | None) -> None:
    """Restore autostart of a guest that stays on the source, and resume it if ``policy=pause`` has
    paused it. step: of that pause.

    Raises MigrationFailed if another operation may have paused it.
    """
    confirm.restore_autostart(conn, report)
    if not step or report.state != outcome.RUNNING:
        return
    with translated():
        source_dom = confirm.find(conn, report.uuid)
        paused_by_user = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        if source_dom is None or source_dom.state() != paused_by_user:
            return
        if step == journal.PAUSED:
            source_dom.resume()
            return
    name = report.name
    raise errors.MigrationFailed(
        f"{name} is paused on {report.host}, by its migration or by another program: run "
        f"virt.resume {name} or virt.stop {name}, then salt-run virt.migrate_recover {name}"
    )


def _absence_reason(peer: libvirt.virConnect, report: GuestReport) -> str | None:
    """Return why the target lacks the guest although it was confirmed there; None if it has the
    guest."""
    if confirm.find(peer, report.uuid) is not None:
        return None
    return f"{report.name} is no longer on {peer.getHostname()}: find it first"


def _finish_completed(
    journal: MigrationJournal, job: MigrationJob, entry: JournalEntry
) -> RecoveryResult:
    """Finish a complete migration that was interrupted: release the target's reservation, and
    define the guest's checkpoints there."""
    with connect_target(job, entry.target) as peer:
        reservations.release(peer, entry.created)
        lost_checkpoints = confirm.send_checkpoints(peer, entry)
    journal.close()
    return RecoveryResult(
        name=entry.report.name, outcome=NOTHING, checkpoints_lost=lost_checkpoints or None
    )


def _is_replaced(conn: libvirt.virConnect, report: GuestReport) -> bool:
    """Return whether another guest has this name on the source now, because the guest was
    removed."""
    domain = lookup.find(conn, report.name)
    return domain is not None and domain.UUIDString() != report.uuid


def _end_replaced(
    journal: MigrationJournal, job: MigrationJob, entry: JournalEntry
) -> RecoveryResult:
    """Clean up after a guest that was removed, or that is on the target alone."""
    report, decision = entry.report, UNDONE
    with connect_target(job, entry.target) as peer:
        if confirm.find(peer, report.uuid) is None:
            deleted, retained = undo_target(peer, entry.target_files)
        else:
            deleted, decision = reservations.release(peer, entry.created), MOVED
            reason = (
                f"another guest now has the name {report.name} on this host: check to which "
                "guest this file belongs"
            )
            retained = {} if entry.keep_source else dict.fromkeys(entry.source_files, reason)
        target = peer.getHostname()
    journal.close()
    return RecoveryResult(
        name=report.name, outcome=decision, target=target, deleted=tuple(deleted or ()),
        retained=retained,
    )  # fmt: skip


def connect_target(job: MigrationJob, uri: str) -> AbstractContextManager[libvirt.virConnect]:
    """Return the connection to the target in a journal."""
    return replace(job, transport=transport.parse(uri)).peer()


def retry(journal: MigrationJournal, job: MigrationJob) -> RecoveryResult:
    """Like :meth:`recover`, over new connections, and repeated for a minute.

    Raises MigrationFailed at once if an operator must decide, otherwise the last error.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with connection.connect(job.local) as conn:
                return recover(conn, journal, job)
        except errors.MigrationFailed:
            raise
        except errors.VirtError:  # also if a domain has just disappeared
            if time.monotonic() > deadline:
                raise
            time.sleep(2)


def undo_target(
    peer: libvirt.virConnect, target_files: TargetFiles
) -> tuple[list[str], dict[str, str]]:
    """Release the reservation, and hand over the created files to the target. Return (what is
    removed, {path: why it still exists})."""
    with translated():
        released = reservations.release(peer, target_files.created)
        return released, target_leftovers.hand_over(peer, target_files)
