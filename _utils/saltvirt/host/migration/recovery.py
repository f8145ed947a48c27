"""After a failure or a kill: where does the guest run, and what may be cleaned."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.answers.migration import Recovered
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translated, unless_gone
from saltvirt.host.domain import checkpoints, lookup, removal, snapshot_state
from saltvirt.host.migration import confirm, departed, facts, reservations, target_leftovers
from saltvirt.host.migration.move_journal import Journal
from saltvirt.migration import journal, outcome, transport
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry, MadeThere

if TYPE_CHECKING:
    from saltvirt.host.migration.api import MigrationJob

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
    code, why = dom.state()
    word = lookup.state_name(code)
    waits = word == outcome.PAUSED and why in _BY_MIGRATION
    return outcome.Side(word, waits, why in _SPLIT.get(word, ()))


def _source(here: libvirt.virDomain | None, report: GuestReport) -> outcome.Side:
    """What this host has of the guest; report: as it was when the migration began."""
    found = side(here)
    if here is None or not found.alive or report.process is None:
        return found
    return replace(found, restarted=facts.process(here) != report.process)


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
        here = confirm.find(conn, report.uuid)
        there = confirm.find(peer, report.uuid)
        # of one that was moved with persistent=False the definition is here alone
        only = there is not None and not there.isPersistent()
        verdict = outcome.decide(
            _source(here, report),
            side(there),
            report.active,
            report.state == outcome.RUNNING,
            here is not None and bool(here.isPersistent()) and not only,
        )
        for action in verdict.actions:
            ACTIONS[action](here, there)
    if verdict.outcome == outcome.UNDECIDED:
        raise errors.MigrationFailed(f"{report.name}: {verdict.words}")
    return verdict.outcome


def undefine(dom: libvirt.virDomain) -> None:
    """Forgets the definition here; the variable store of its firmware goes with it.

    Raises MigrationFailed, with the guest defined as before, when somebody has just started it.
    """
    conn, name, guest_uuid = dom.connect(), dom.name(), dom.UUIDString()
    known = checkpoints.texts(dom)
    xml = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    if dom.isActive():
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} meanwhile")
    with removal.variables(conn, dom) as nvram:
        removal.ask(dom, _undefining(dom, removal.tpm(conn, dom), "MANAGED_SAVE", nvram))
    if confirm.find(conn, guest_uuid) is not None:
        checkpoints.tell(conn.defineXML(xml), known)
        raise errors.MigrationFailed(f"{name} was started on {conn.getHostname()} meanwhile")
    snapshot_state.forget_all(guest_uuid)


def _undefining(dom: libvirt.virDomain, tpm: str | None, *names: str) -> list[int]:
    """libvirt's numbers for the names of VIR_DOMAIN_UNDEFINE_*, with what libvirt knows of
    snapshots and checkpoints; not every driver knows the flag of these. tpm: as removal.tpm has it:
    of a libvirt that does not know KEEP_TPM hosts can share no such state."""
    known = ["SNAPSHOTS_METADATA", *(["CHECKPOINTS_METADATA"] if checkpoints.texts(dom) else [])]
    flags = sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{one}") for one in (*names, *known))
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
    with unless_gone():  # a transient one is gone by now
        removal.ask(dom, _undefining(dom, tpm, "KEEP_NVRAM"))


ACTIONS: dict[str, Callable[[Any, Any], object]] = {
    outcome.END_HERE: lambda here, there: here.destroy(),
    outcome.FORGET_HERE: lambda here, there: undefine(here),
    outcome.RESUME_HERE: lambda here, there: here.resume(),
    outcome.END_THERE: lambda here, there: _end(there, removal.tpm(here.connect(), here)),
    outcome.PAUSE_THERE: lambda here, there: there.suspend(),
    outcome.PAUSE_HERE: lambda here, there: here.suspend(),
}


def recover(
    conn: libvirt.virConnect,
    journal: Journal,
    job: MigrationJob,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> Recovered:
    """Ends what the journal tells of: the outcome is MOVED or UNDONE; NOTHING where
    only a reservation was left to release. elsewhere: see gone_on. removed: a person says that the
    guest was removed: where neither host has it, the outcome is REMOVED.

    Raises OperationFailed while libvirt itself is still at it, MigrationFailed when a
    person must decide, ConnectionFailed when the target cannot be asked.
    """
    entry = journal.begun()
    with translated():
        if entry.over:
            return _withdrawn(journal, job, entry)
        if _replaced(conn, entry.report):
            return _forgotten(journal, job, entry)
        not_at_work(conn, entry)
        with at(job, entry.target) as peer:
            result = _without_both(conn, peer, entry, elsewhere)
            if result is None and _is_gone(conn, peer, entry):
                result = _removed(peer, entry, removed, journal.path)
            result = result or _ended(conn, peer, entry)
    journal.close()
    return result


def _without_both(
    conn: libvirt.virConnect,
    peer: libvirt.virConnect,
    entry: JournalEntry,
    elsewhere: Collection[str],
) -> Recovered | None:
    """As gone_on, and the target is cleaned. None where the target has the guest."""
    gone = confirm.find(peer, entry.report.uuid) is None
    result = gone_on(conn, entry, elsewhere) if gone else None
    if result:
        _clean_target(peer, entry)
    return result


def _clean_target(peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Removes what a migration made on the target, which does not have the guest. If the move had
    begun, only the reservation: what else it has of the guest may be kept on purpose."""
    if entry.phase == journal.BEGUN:
        cleaned(peer, entry.made)
    else:
        reservations.release(peer, entry.created)


def gone_on(
    conn: libvirt.virConnect, entry: JournalEntry, elsewhere: Collection[str]
) -> Recovered | None:
    """The end of a migration whose guest is on another host by now, as the master has seen, and not
    on the target. None where that does not matter: the guest lives here, or nothing was sent.

    elsewhere: the hosts besides the two that have a guest of this UUID. Raises MigrationFailed
    where it is defined here, too: it must not start here beside the other one.
    """
    report = entry.report
    here = confirm.find(conn, report.uuid)
    stays = here is not None and (entry.phase == journal.BEGUN or side(here).alive)
    if not elsewhere or stays or entry.phase == journal.MOVED:
        return None
    name, places = report.name, ", ".join(sorted(elsewhere))
    if here is not None:
        raise errors.MigrationFailed(
            f"{name} is on {places} by now, and defined on {report.host}, too: keep one, and "
            f"virt.undefine {name} on the other host, which leaves its disks; then salt-run "
            f"virt.migrate_recover {name}"
        )
    departed.note(name, places)
    why = f"{name} is on {places} by now: look at it there before you delete this"
    return Recovered(
        name=name, outcome=MOVED, source=report.host, target=places, live=report.active,
        kept={} if entry.keep_source else dict.fromkeys(entry.left, why),
    )  # fmt: skip


def _is_gone(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> bool:
    """Whether neither host has the guest. Where both have seen it there, it was removed since."""
    found = [confirm.find(one, entry.report.uuid) for one in (conn, peer)]
    return found == [None, None] and entry.phase != journal.MOVED


def _removed(peer: libvirt.virConnect, entry: JournalEntry, removed: bool, path: str) -> Recovered:
    """The end of a migration of a guest that was removed; what it left here stays. path: of the
    journal. Raises MigrationFailed where nobody says that it was."""
    name = entry.report.name
    if not removed:
        way = way_back(path, f"salt-run virt.migrate_recover {name} removed=True")
        raise errors.MigrationFailed(
            f"{name} is on neither host, and its disks were not touched: {way}"
        )
    _clean_target(peer, entry)
    kept = dict.fromkeys(entry.left, f"{name} left it here before it was removed")
    return Recovered(name=name, outcome=outcome.REMOVED, source=entry.report.host, kept=kept)


def way_back(path: str, end: str = "remove that file") -> str:
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
    here = confirm.find(conn, entry.report.uuid)
    if here is not None and here.isActive() and has_job(here):
        raise errors.OperationFailed(
            f"libvirt is still moving {entry.report.name} to {entry.target}: wait for "
            "it, or end it with virt.migrate_abort"
        )


def _ended(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> Recovered:
    """Settles where the guest is and removes what is left of it on the other host."""
    report, left, keep_source = entry.report, entry.left, entry.keep_source
    deleted: list[str] = []
    kept: dict[str, str] = {}
    lost: dict[str, str] = {}
    returned = False
    if entry.phase == journal.MOVED:
        ended, why = MOVED, _gone_since(peer, report)
        returned = bool(why) and confirm.find(conn, report.uuid) is not None
        if why:  # what stayed here may be the last there is of it
            keep_source, kept = True, dict.fromkeys(left, why)
    else:
        not_run_there(conn, peer, entry)
        ended = resolve(conn, peer, report)
    if ended == UNDONE:
        deleted, kept = cleaned(peer, entry.made)
        run_on(conn, report, entry.pause)
    else:
        reservations.release(peer, entry.created)
    if ended == MOVED:
        if entry.phase != journal.MOVED:  # since then others may have changed it, or moved it back
            confirm.autostart(conn, peer, report)
        lost = confirm.checkpoints(peer, entry)
        if not returned:
            departed.note(report.name, peer.getHostname())
    if ended == MOVED and not keep_source:
        deleted, kept = confirm.remove_source(conn, report, left)
    return Recovered(
        name=report.name,
        outcome=ended,
        source=report.host,
        target=peer.getHostname(),
        live=report.active,
        deleted=tuple(deleted),
        kept=kept,
        checkpoints_lost=lost or None,
    )


def not_run_there(conn: libvirt.virConnect, peer: libvirt.virConnect, entry: JournalEntry) -> None:
    """Raises MigrationFailed where the target has the guest by somebody else's hand: it was not
    sent yet, or its copied disks were written to there."""
    report, why = entry.report, None
    name = report.name
    with translated():
        here, there = confirm.find(conn, report.uuid), confirm.find(peer, report.uuid)
        if here is None or there is None:
            return
        target = peer.getHostname()
        if entry.phase == journal.BEGUN:
            why = f"{target} has a guest {name} that this migration did not create there"
        else:  # of a running guest no copy is whole before libvirt has moved it
            ran = target_leftovers.written_since(peer, entry.made)
            why = f"{', '.join(ran)} on {target}, {target_leftovers.NEWER}" if ran else None
    if why:
        raise errors.MigrationFailed(
            f"{why}: keep one, and virt.stop and virt.undefine {name} on the other host; then "
            f"salt-run virt.migrate_recover {name}"
        )


def run_on(conn: libvirt.virConnect, report: GuestReport, step: str | None) -> None:
    """Lets a guest that stays here start with the host as before, and run on, when ``policy=pause``
    has paused it. step: how far that had come.

    Raises MigrationFailed where it is paused and may be so by somebody else's will.
    """
    confirm.by_itself(conn, report)
    if not step or report.state != outcome.RUNNING:
        return
    with translated():
        here = confirm.find(conn, report.uuid)
        by_somebody = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        if here is None or here.state() != by_somebody:
            return
        if step == journal.PAUSED:
            here.resume()
            return
    name = report.name
    raise errors.MigrationFailed(
        f"{name} is paused on {report.host}, by its migration or by somebody else: "
        f"virt.resume {name}, or virt.stop it, then salt-run virt.migrate_recover {name}"
    )


def _gone_since(peer: libvirt.virConnect, report: GuestReport) -> str | None:
    """Why the target does not have the guest that was confirmed to be there; None when it has."""
    if confirm.find(peer, report.uuid) is not None:
        return None
    return f"{report.name} is not on {peer.getHostname()} any more: look where it is, first"


def _withdrawn(journal: Journal, job: MigrationJob, entry: JournalEntry) -> Recovered:
    """What a move that is complete may have left to do, when it was cut off: the target's
    reservation is released, and the target told of the guest's checkpoints."""
    with at(job, entry.target) as peer:
        reservations.release(peer, entry.created)
        lost = confirm.checkpoints(peer, entry)
    journal.close()
    return Recovered(name=entry.report.name, outcome=NOTHING, checkpoints_lost=lost or None)


def _replaced(conn: libvirt.virConnect, report: GuestReport) -> bool:
    """Whether another guest has this name here by now: the one of the journal was removed."""
    found = lookup.find(conn, report.name)
    return found is not None and found.UUIDString() != report.uuid


def _forgotten(journal: Journal, job: MigrationJob, entry: JournalEntry) -> Recovered:
    """Cleans up after a guest that is no more, or that is on the target alone."""
    report, ended = entry.report, UNDONE
    with at(job, entry.target) as peer:
        if confirm.find(peer, report.uuid) is None:
            gone, kept = cleaned(peer, entry.made)
        else:
            gone, ended = reservations.release(peer, entry.created), MOVED
            why = f"another guest is called {report.name} here by now: look whose it is"
            kept = {} if entry.keep_source else dict.fromkeys(entry.left, why)
        target = peer.getHostname()
    journal.close()
    return Recovered(
        name=report.name, outcome=ended, target=target, deleted=tuple(gone or ()), kept=kept
    )


def at(job: MigrationJob, uri: str) -> AbstractContextManager[libvirt.virConnect]:
    """The connection to the target that a journal names."""
    return replace(job, transport=transport.parse(uri)).peer()


def retry(journal: Journal, job: MigrationJob) -> Recovered:
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


def cleaned(peer: libvirt.virConnect, made: MadeThere) -> tuple[list[str], dict[str, str]]:
    """Releases the reservation, and hands over to the target what was made there: (what is gone,
    path to why it is still there)."""
    with translated():
        gone = reservations.release(peer, made.created)
        return gone, target_leftovers.hand_over(peer, made)
