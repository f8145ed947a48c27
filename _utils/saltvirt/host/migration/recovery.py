"""After a failure or a kill: where does the guest run, and what may be cleaned."""

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

# how long to ask again when a host does not answer, or libvirt is still at it
PATIENCE_S = 60
MOVED, UNDONE, NOTHING = outcome.MOVED, outcome.UNDONE, "nothing"

# virDomainPausedReason: it waits for the other end of a migration, or has not begun to run
_BY_MIGRATION = (2, 11)
# post-copy, under way or failed: virDomainPausedReason and virDomainRunningReason
_SPLIT = {outcome.PAUSED: (12, 13), outcome.RUNNING: (10, 11)}


def side(dom: libvirt.virDomain | None) -> outcome.Side:
    """What a host has of the guest; dom may be None."""
    if dom is None:
        return outcome.Side()
    code, reason = dom.state()
    state = lookup.state_name(code)
    waits = state == outcome.PAUSED and reason in _BY_MIGRATION
    return outcome.Side(state, waits, reason in _SPLIT.get(state, ()))


def _source(source_dom: libvirt.virDomain | None, report: GuestReport) -> outcome.Side:
    """What this host has of the guest; report: as it was when the migration began."""
    source_side = side(source_dom)
    if source_dom is None or not source_side.alive or report.process is None:
        return source_side
    return replace(source_side, restarted=facts.process(source_dom) != report.process)


def resolve(conn: libvirt.virConnect, peer: libvirt.virConnect, report: GuestReport) -> str:
    """Sees to it that the guest is on one host only: MOVED or UNDONE.

    Raises MigrationFailed when a person must decide, ConnectionFailed when one of the two
    cannot be asked.
    """
    with translated():
        if not (peer.isAlive() and conn.isAlive()):
            raise errors.ConnectionFailed(
                "the connection to one of the hosts was lost: what they have is not known"
            )
        source_dom = confirm.find(conn, report.uuid)
        target_dom = confirm.find(peer, report.uuid)
        # of one that was moved with persistent=False the definition is here alone
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
    """Forgets the definition here; the variable store of its firmware goes with it.

    Raises MigrationFailed, with the guest defined as before, when somebody has just started it.
    """
    conn, name, guest_uuid = dom.connect(), dom.name(), dom.UUIDString()
    definitions = checkpoints.texts(dom)
    xml = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    if dom.isActive():
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} meanwhile")
    with removal.variables(conn, dom) as nvram:
        removal.ask(dom, _undefine_flags(dom, removal.tpm(conn, dom), "MANAGED_SAVE", nvram))
    if confirm.find(conn, guest_uuid) is not None:
        checkpoints.redefine(conn.defineXML(xml), definitions)
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} meanwhile")
    snapshot_state.forget_all(guest_uuid)


def _undefine_flags(dom: libvirt.virDomain, tpm: str | None, *names: str) -> list[int]:
    """libvirt's numbers for the names of VIR_DOMAIN_UNDEFINE_*, with what libvirt knows of
    snapshots and checkpoints; not every driver knows the flag of these. tpm: as removal.tpm has it:
    of a libvirt that does not know KEEP_TPM hosts can share no such state."""
    metadata = ["SNAPSHOTS_METADATA", *(["CHECKPOINTS_METADATA"] if checkpoints.texts(dom) else [])]
    flags = sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in (*names, *metadata))
    keep = getattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM", 0) if tpm == "KEEP_TPM" else 0
    return [flags | keep, flags]


def _end(dom: libvirt.virDomain, tpm: str | None) -> None:
    """Removes a copy that never ran. tpm: what removal.tpm says of the guest beside it."""
    if side(dom).alive:
        raise errors.OperationFailed(
            f"{dom.name()} was started just now: the hosts are asked again"
        )
    if dom.isActive():
        dom.destroy()
    with skip_undefined():  # a transient one is gone by now
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
    """Ends what the journal tells of: the outcome is MOVED or UNDONE; NOTHING where
    only a reservation was left to release. elsewhere: see gone_on. removed: a person says that the
    guest was removed: where neither host has it, the outcome is REMOVED.

    Raises OperationFailed while libvirt itself is still at it, MigrationFailed when a
    person must decide, ConnectionFailed when the target cannot be asked.
    """
    entry = journal.require_entry()
    with translated():
        if entry.over:
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
    """As gone_on, and the target is cleaned. None where the target has the guest."""
    is_absent = confirm.find(peer, entry.report.uuid) is None
    result = moved_elsewhere(conn, entry, elsewhere) if is_absent else None
    if result:
        _clean_target(peer, entry)
    return result


def _clean_target(peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Removes what a migration made on the target, which does not have the guest. If the move had
    begun, only the reservation: what else it has of the guest may be kept on purpose."""
    if entry.phase == journal.PREPARING:
        undo_target(peer, entry.target_files)
    else:
        reservations.release(peer, entry.created)


def moved_elsewhere(
    conn: libvirt.virConnect, entry: JournalEntry, elsewhere: Collection[str]
) -> RecoveryResult | None:
    """The end of a migration whose guest is on another host by now, as the master has seen, and not
    on the target. None where that does not matter: the guest lives here, or nothing was sent.

    elsewhere: the hosts besides the two that have a guest of this UUID. Raises MigrationFailed
    where it is defined here, too: it must not start here beside the other one.
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
            f"{name} is on {hosts} by now, and defined on {report.host}, too: keep one, and "
            f"virt.undefine {name} on the other host, which leaves its disks; then salt-run "
            f"virt.migrate_recover {name}"
        )
    departures.record_departure(name, hosts)
    reason = f"{name} is on {hosts} by now: look at it there before you delete this"
    return RecoveryResult(
        name=name, outcome=MOVED, source=report.host, target=hosts, live=report.active,
        kept={} if entry.keep_source else dict.fromkeys(entry.left, reason),
    )  # fmt: skip


def _is_on_neither(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> bool:
    """Whether neither host has the guest. Where both have seen it there, it was removed since."""
    domains = [confirm.find(host_conn, entry.report.uuid) for host_conn in (conn, peer)]
    return domains == [None, None] and entry.phase != journal.MOVED


def _end_removed(
    peer: libvirt.virConnect, entry: JournalEntry, removed: bool, path: str
) -> RecoveryResult:
    """The end of a migration of a guest that was removed; what it left here stays. path: of the
    journal. Raises MigrationFailed where nobody says that it was."""
    name = entry.report.name
    if not removed:
        instruction = redefine_hint(path, f"salt-run virt.migrate_recover {name} removed=True")
        raise errors.MigrationFailed(
            f"{name} is on neither host, and its disks were not touched: {instruction}"
        )
    _clean_target(peer, entry)
    retained = dict.fromkeys(entry.left, f"{name} left it here before it was removed")
    return RecoveryResult(
        name=name, outcome=outcome.REMOVED, source=entry.report.host, kept=retained
    )


def redefine_hint(path: str, end: str = "remove that file") -> str:
    """What a person does about a guest that no host has. path: of the journal of its migration.
    end: what ends that, if nobody wants it."""
    return (
        f"its definition is in {path}: define it again by that; if it was removed on purpose, {end}"
    )


def has_job(dom: libvirt.virDomain) -> bool:
    """Whether libvirt works at something with the domain, such as moving it."""
    return dom.jobInfo()[0] in (1, 2)


def not_at_work(conn: libvirt.virConnect, entry: JournalEntry) -> None:
    """Raises OperationFailed while libvirt itself is still moving the guest."""
    source_dom = confirm.find(conn, entry.report.uuid)
    if source_dom is not None and source_dom.isActive() and has_job(source_dom):
        raise errors.OperationFailed(
            f"libvirt is still moving {entry.report.name} to {entry.target}: wait for "
            "it, or end it with virt.migrate_abort"
        )


def _settle(
    conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry
) -> RecoveryResult:
    """Settles where the guest is and removes what is left of it on the other host."""
    report, source_files, keep_source = entry.report, entry.left, entry.keep_source
    deleted: list[str] = []
    retained: dict[str, str] = {}
    lost_checkpoints: dict[str, str] = {}
    has_returned = False
    if entry.phase == journal.MOVED:
        decision, reason = MOVED, _absence_reason(peer, report)
        has_returned = bool(reason) and confirm.find(conn, report.uuid) is not None
        if reason:  # what stayed here may be the last there is of it
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
        if entry.phase != journal.MOVED:  # since then others may have changed it, or moved it back
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
        kept=retained,
        checkpoints_lost=lost_checkpoints or None,
    )


def refuse_foreign(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Raises MigrationFailed where the target has the guest by somebody else's hand: it was not
    sent yet, or its copied disks were written to there."""
    report, reason = entry.report, None
    name = report.name
    with translated():
        source_dom, target_dom = confirm.find(conn, report.uuid), confirm.find(peer, report.uuid)
        if source_dom is None or target_dom is None:
            return
        target = peer.getHostname()
        if entry.phase == journal.PREPARING:
            reason = f"{target} has a guest {name} that this migration did not create there"
        else:  # of a running guest no copy is whole before libvirt has moved it
            changed_files = target_leftovers.written_since(peer, entry.target_files)
            reason = (
                f"{', '.join(changed_files)} on {target}, {target_leftovers.NEWER}"
                if changed_files
                else None
            )
    if reason:
        raise errors.MigrationFailed(
            f"{reason}: keep one, and virt.stop and virt.undefine {name} on the other host; then "
            f"salt-run virt.migrate_recover {name}"
        )


def resume_source(conn: libvirt.virConnect, report: GuestReport, step: str | None) -> None:
    """Lets a guest that stays here start with the host as before, and run on, when ``policy=pause``
    has paused it. step: how far that had come.

    Raises MigrationFailed where it is paused and may be so by somebody else's will.
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
        f"{name} is paused on {report.host}, by its migration or by somebody else: "
        f"virt.resume {name}, or virt.stop it, then salt-run virt.migrate_recover {name}"
    )


def _absence_reason(peer: libvirt.virConnect, report: GuestReport) -> str | None:
    """Why the target does not have the guest that was confirmed to be there; None when it has."""
    if confirm.find(peer, report.uuid) is not None:
        return None
    return f"{report.name} is not on {peer.getHostname()} any more: look where it is, first"


def _finish_completed(
    journal: MigrationJournal, job: MigrationJob, entry: JournalEntry
) -> RecoveryResult:
    """What a move that is complete may have left to do, when it was cut off: the target's
    reservation is released, and the target told of the guest's checkpoints."""
    with connect_target(job, entry.target) as peer:
        reservations.release(peer, entry.created)
        lost_checkpoints = confirm.send_checkpoints(peer, entry)
    journal.close()
    return RecoveryResult(
        name=entry.report.name, outcome=NOTHING, checkpoints_lost=lost_checkpoints or None
    )


def _is_replaced(conn: libvirt.virConnect, report: GuestReport) -> bool:
    """Whether another guest has this name here by now: the one of the journal was removed."""
    domain = lookup.find(conn, report.name)
    return domain is not None and domain.UUIDString() != report.uuid


def _end_replaced(
    journal: MigrationJournal, job: MigrationJob, entry: JournalEntry
) -> RecoveryResult:
    """Cleans up after a guest that is no more, or that is on the target alone."""
    report, decision = entry.report, UNDONE
    with connect_target(job, entry.target) as peer:
        if confirm.find(peer, report.uuid) is None:
            deleted, retained = undo_target(peer, entry.target_files)
        else:
            deleted, decision = reservations.release(peer, entry.created), MOVED
            reason = f"another guest is called {report.name} here by now: look whose it is"
            retained = {} if entry.keep_source else dict.fromkeys(entry.left, reason)
        target = peer.getHostname()
    journal.close()
    return RecoveryResult(
        name=report.name,
        outcome=decision,
        target=target,
        deleted=tuple(deleted or ()),
        kept=retained,
    )


def connect_target(job: MigrationJob, uri: str) -> AbstractContextManager[libvirt.virConnect]:
    """The connection to the target that a journal names."""
    return replace(job, transport=transport.parse(uri)).peer()


def retry(journal: MigrationJournal, job: MigrationJob) -> RecoveryResult:
    """Like :meth:`recover`, over new connections, trying again for a minute.

    Raises MigrationFailed at once when a person must decide, else what the last try raised.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with connection.connect(job.local) as conn:
                return recover(conn, journal, job)
        except errors.MigrationFailed:
            raise
        except errors.VirtError:  # also: a domain that was there a moment ago is gone
            if time.monotonic() > deadline:
                raise
            time.sleep(2)


def undo_target(
    peer: libvirt.virConnect, target_files: TargetFiles
) -> tuple[list[str], dict[str, str]]:
    """Releases the reservation, and hands over to the target what was made there: (what is gone,
    path to why it is still there)."""
    with translated():
        released = reservations.release(peer, target_files.created)
        return released, target_leftovers.hand_over(peer, target_files)
