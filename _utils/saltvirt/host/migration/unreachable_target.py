"""An interrupted migration whose target does not answer: when it may end without the target.

What the target still has for the guest (a reservation, empty or incomplete disks) is recorded, and
removed when it answers.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.answers.migration import RecoveryResult, UnfinishedMigration
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.migration import confirm, move_journal, recovery, reservations
from saltvirt.host.migration.move_journal import MigrationJournal
from saltvirt.migration import outcome, transport
from saltvirt.migration.journal import MOVED, PREPARING, JournalEntry, TargetLeftovers
from saltvirt.system import message_file

if TYPE_CHECKING:
    from saltvirt.host.migration.job import MigrationJob

FOLDER = "left"


def end_migration(
    conn: libvirt.virConnect,
    journal: MigrationJournal,
    job: MigrationJob,
    lost: str | None = None,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> RecoveryResult:
    """Like ``recovery.recover``; if the target does not answer, end the migration without it where
    that is safe, or if an operator declares the target lost.

    Raises what ``recover`` does; ConnectionFailed with the way out.

    lost: the name of the target, from an operator who knows that it does not run the guest and will
    not. The result then has ``left``: host to why it may still have files.
    """
    entry = journal.require_entry()
    host = transport.parse(entry.target).host
    if lost and lost != host:
        raise errors.InvalidInput(
            f"{journal.name} was being migrated to {host}, not to {lost}: pass lost={host} "
            "if that host is lost"
        )
    try:
        return recovery.recover(conn, journal, job, elsewhere, removed)
    except errors.ConnectionFailed as exc:
        with translated():
            result = None if entry.completed else recovery.moved_elsewhere(conn, entry, elsewhere)
        if result and entry.phase != PREPARING:  # its reservation there expires
            journal.close()
            return result
        if result:
            return _end_detached(conn, journal, entry, host, lost, result)
        if lost:
            job.on_target_lost(host)
        elif not _is_safe(conn, entry):
            raise errors.ConnectionFailed(_way_out(journal.name, host, exc)) from exc
    return _end_detached(conn, journal, entry, host, lost)


def _is_safe(conn: libvirt.virConnect, entry: JournalEntry) -> bool:
    """Return whether the guest can only be on the source, or is already confirmed to be
    elsewhere."""
    if entry.completed:
        return True
    with translated():
        source_dom = confirm.find(conn, entry.report.uuid)
    return entry.phase == PREPARING and source_dom is not None


def _way_out(name: str, host: str, exc: Exception) -> str:
    return (
        f"{host} does not answer and may run {name}: {exc}; nothing is changed until "
        f"that is known. If {host} is permanently off, or you saw that it does not "
        f"run {name}: salt-run virt.migrate_recover {name} lost={host}"
    )


def _end_detached(
    conn: libvirt.virConnect,
    journal: MigrationJournal,
    entry: JournalEntry,
    host: str,
    lost: str | None,
    result: RecoveryResult | None = None,
) -> RecoveryResult:
    """End the migration, and record what the host may still have. result: the end, if it is
    known."""
    if entry.phase == MOVED and not entry.completed:
        return _end_target_lost(journal, entry, host)
    if result is None:
        decision = (
            recovery.NOTHING if entry.completed else _settle_on_source(conn, journal, entry, host)
        )
        result = RecoveryResult(name=journal.name, outcome=decision)
    path = os.path.join(_folder(os.path.dirname(journal.path)), f"{journal.name}@{host}.json")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    leftovers = TargetLeftovers(
        **vars(entry.target_files), uuid=entry.report.uuid, target=entry.target,
        since=int(time.time()), operator_confirmed=bool(lost),
    )  # fmt: skip
    message_file.write(path, leftovers)
    journal.close()
    return replace(result, leftovers={host: "it does not answer"})


def _end_target_lost(journal: MigrationJournal, entry: JournalEntry, host: str) -> RecoveryResult:
    """End a migration that both hosts had confirmed, to a target that an operator declares lost.
    The files on the source may be the last copy, and stay."""
    reason = f"{journal.name} was migrated to {host}, which is lost: this may be its last copy"
    journal.close()
    retained = dict.fromkeys(entry.source_files, reason)
    return RecoveryResult(name=journal.name, outcome=recovery.MOVED, target=host, retained=retained)


def _settle_on_source(
    conn: libvirt.virConnect, journal: MigrationJournal, entry: JournalEntry, host: str
) -> str:
    """Return UNDONE: the guest is on the source, and the target's part counts as gone."""
    report = entry.report
    with translated():
        recovery.not_at_work(conn, entry)
        source_dom = confirm.find(conn, report.uuid)
        source_side = recovery.side(source_dom)
        was_running = report.state == outcome.RUNNING
        resolution = outcome.decide(source_side, outcome.Side(), report.active, was_running)
        if resolution.outcome != recovery.UNDONE:
            raise errors.MigrationFailed(
                f"{journal.name} cannot run here without {host}: {resolution.message}; "
                f"{recovery.redefine_hint(journal.path)}"
            )
        for action in resolution.actions:
            recovery.ACTIONS[action](source_dom, None)
        recovery.resume_source(conn, report, entry.pause)
    return resolution.outcome


def _folder(journals: str) -> str:
    return os.path.join(str(journals), FOLDER)


def leftover_keys(journals: str) -> list[str]:
    """Return "name@host" for what targets that did not answer may still have, sorted."""
    return move_journal.names(_folder(journals))


def _read(journals: str, key: str) -> TargetLeftovers | None:
    """Return the record. Raises BadAnswer, which names the file and what to do."""
    name, _, host = key.rpartition("@")
    try:
        return message_file.read(os.path.join(_folder(journals), f"{key}.json"), TargetLeftovers)
    except errors.BadAnswer as exc:
        raise errors.BadAnswer(
            f"{exc}; it recorded the leftovers of {name} on {host}: check its files "
            "there, and remove this file"
        ) from exc


def unfinished(journals: str = move_journal.FOLDER) -> dict[str, UnfinishedMigration]:
    """Return these records like ``move_journal.unfinished``."""
    keys = leftover_keys(journals)
    by_key = {key: move_journal.describe(functools.partial(_read, journals, key)) for key in keys}
    return {
        key: replace(migration, has_leftovers=True)
        for key, migration in by_key.items()
        if migration
    }


def hand_over(
    job: MigrationJob, host: str | None = None
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Hand over to its hosts what was left there for the guest of the job. Return (the deleted
    paths, {path: why it still exists}, {host: why it cannot be notified}). host: only that one."""
    deleted: list[str] = []
    retained: dict[str, str] = {}
    unreachable: dict[str, str] = {}
    for key in leftover_keys(job.journals):
        name, _, target = key.rpartition("@")
        if name != job.name or host not in (None, target):
            continue
        try:
            leftovers = _read(job.journals, key)
            if leftovers is None:
                continue
            with translated(), recovery.connect_target(job, leftovers.target) as peer:
                _refuse_arriving(peer, leftovers, target)
                result = recovery.undo_target(peer, leftovers)
                deleted, retained = [*deleted, *result[0]], {**retained, **result[1]}
        except errors.VirtError as exc:
            unreachable[target] = str(exc)
            continue
        os.unlink(os.path.join(_folder(job.journals), f"{key}.json"))
    return deleted, retained, unreachable


def _refuse_arriving(peer: libvirt.virConnect, leftovers: TargetLeftovers, host: str) -> None:
    name = leftovers.name
    present = {*lookup.names(peer)}
    if confirm.find(peer, leftovers.uuid) is not None or name in present:
        raise errors.OperationFailed(
            f"{host} has a guest {name}, and files of an interrupted migration: check to "
            f"which they belong; salt {host} virt.undefine {name} keeps its disks"
        )
    own_files = {os.path.basename(path) for path in leftovers.created}
    if name in {
        reservation.name for reservation in reservations.remote(peer, present, without=own_files)
    }:
        raise errors.OperationFailed(f"{name} is being migrated to {host} again: wait for it")
