"""A broken-off migration whose target does not answer: when the guest may go on without it.

What the target still holds for the guest (a reservation, empty or half-filled disks) is written
down and taken away later, when it answers.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.answers.migration import Recovered, UnfinishedMigration
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup
from saltvirt.host.migration import confirm, move_journal, recovery, reservations
from saltvirt.host.migration.move_journal import Journal
from saltvirt.migration import outcome, transport
from saltvirt.migration.journal import BEGUN, MOVED, JournalEntry, LeftThere

if TYPE_CHECKING:
    from saltvirt.host.migration.api import MigrationJob

FOLDER = "left"


def ended(
    conn: libvirt.virConnect,
    journal: Journal,
    job: MigrationJob,
    lost: str | None = None,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> Recovered:
    """Like ``recovery.recover``; and when the target does not answer: ends it without
    the target where that is safe, or where a person vouches for it.

    Raises what ``recover`` does, ConnectionFailed with the way out.

    lost: the name of the target, by a person who knows that it does not run the guest and will
    not. The result has then ``left``: host to why something may still be there.
    """
    entry = journal.begun()
    host = transport.parse(entry.target).host
    if lost and lost != host:
        raise errors.InvalidInput(
            f"{journal.name} was on its way to {host}, not to {lost}: lost={host}, if it is lost"
        )
    try:
        return recovery.recover(conn, journal, job, elsewhere, removed)
    except errors.ConnectionFailed as exc:
        with translated():
            found = None if entry.over else recovery.gone_on(conn, entry, elsewhere)
        if found and entry.phase != BEGUN:  # its reservation there ends by itself
            journal.close()
            return found
        if found:
            return _without(conn, journal, entry, host, lost, found)
        if lost:
            job.given_up(host)
        elif not _is_safe(conn, entry):
            raise errors.ConnectionFailed(_way_out(journal.name, host, exc)) from exc
    return _without(conn, journal, entry, host, lost)


def _is_safe(conn: libvirt.virConnect, entry: JournalEntry) -> bool:
    """Whether the guest can be nowhere but here, or is already confirmed to be elsewhere."""
    if entry.over:
        return True
    with translated():
        here = confirm.find(conn, entry.report.uuid)
    return entry.phase == BEGUN and here is not None


def _way_out(name: str, host: str, exc: Exception) -> str:
    return (
        f"{host} does not answer and may run {name}: {exc}; nothing is done to it before that "
        f"is known. If {host} is off for good, or you saw that it does not run it: "
        f"salt-run virt.migrate_recover {name} lost={host}"
    )


def _without(
    conn: libvirt.virConnect,
    journal: Journal,
    entry: JournalEntry,
    host: str,
    lost: str | None,
    found: Recovered | None = None,
) -> Recovered:
    """Ends it, and writes down what the host may still hold. found: the end, if it is known."""
    if entry.phase == MOVED and not entry.over:
        return _left_here(journal, entry, host)
    if found is None:
        ended = recovery.NOTHING if entry.over else _settled_here(conn, journal, entry, host)
        found = Recovered(name=journal.name, outcome=ended)
    path = os.path.join(_folder(os.path.dirname(journal.path)), f"{journal.name}@{host}.json")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    left = LeftThere(
        **vars(entry.made), uuid=entry.report.uuid, target=entry.target,
        since=int(time.time()), vouched=bool(lost),
    )  # fmt: skip
    move_journal.put(path, left)
    journal.close()
    return replace(found, left={host: "it does not answer"})


def _left_here(journal: Journal, entry: JournalEntry, host: str) -> Recovered:
    """Both hosts had confirmed that the guest was on the target, which a person says is lost: what
    it left here may be the last there is of it, and stays."""
    why = f"{journal.name} was moved to {host}, which is lost: it may be the last there is of it"
    journal.close()
    kept = dict.fromkeys(entry.left, why)
    return Recovered(name=journal.name, outcome=recovery.MOVED, target=host, kept=kept)


def _settled_here(
    conn: libvirt.virConnect, journal: Journal, entry: JournalEntry, host: str
) -> str:
    """The guest is here, and the target's part is taken for gone: UNDONE."""
    report = entry.report
    with translated():
        recovery.not_at_work(conn, entry)
        here = confirm.find(conn, report.uuid)
        seen = recovery.side(here)
        was_running = report.state == outcome.RUNNING
        verdict = outcome.decide(seen, outcome.Side(), report.active, was_running)
        if verdict.outcome != recovery.UNDONE:
            raise errors.MigrationFailed(
                f"{journal.name} cannot run here without {host}: {verdict.words}; "
                f"{recovery.way_back(journal.path)}"
            )
        for action in verdict.actions:
            recovery.ACTIONS[action](here, None)
        recovery.run_on(conn, report, entry.pause)
    return verdict.outcome


def _folder(journals: str) -> str:
    return os.path.join(str(journals), FOLDER)


def noted(journals: str) -> list[str]:
    """Of what targets that did not answer may still hold: "name@host" of each, sorted."""
    return move_journal.names(_folder(journals))


def _read(journals: str, key: str) -> LeftThere | None:
    """Raises BadAnswer, which names the file and what to do."""
    name, _, host = key.rpartition("@")
    try:
        return move_journal.read(os.path.join(_folder(journals), f"{key}.json"), LeftThere)
    except errors.BadAnswer as exc:
        raise errors.BadAnswer(
            f"{exc}; it said what {host} may still hold for {name}: look for its files there, and "
            "remove this one"
        ) from exc


def unfinished(journals: str = move_journal.FOLDER) -> dict[str, UnfinishedMigration]:
    """The same as ``move_journal.unfinished`` tells of migrations."""
    keys = noted(journals)
    found = {key: move_journal.told(functools.partial(_read, journals, key)) for key in keys}
    return {key: replace(said, left=True) for key, said in found.items() if said}


def take_away(
    job: MigrationJob, host: str | None = None
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Hands over to its hosts what was left there for the guest of the job: (the paths that are
    gone, path to why it is still there, host to why it cannot be told). host: only that one."""
    gone: list[str] = []
    kept: dict[str, str] = {}
    still: dict[str, str] = {}
    for key in noted(job.journals):
        name, _, on = key.rpartition("@")
        if name != job.name or host not in (None, on):
            continue
        try:
            left = _read(job.journals, key)
            if left is None:
                continue
            with translated(), recovery.at(job, left.target) as peer:
                _not_there(peer, left, on)
                found = recovery.cleaned(peer, left)
                gone, kept = [*gone, *found[0]], {**kept, **found[1]}
        except errors.VirtError as exc:
            still[on] = str(exc)
            continue
        os.unlink(os.path.join(_folder(job.journals), f"{key}.json"))
    return gone, kept, still


def _not_there(peer: libvirt.virConnect, left: LeftThere, host: str) -> None:
    name = left.name
    present = {*lookup.names(peer)}
    if confirm.find(peer, left.uuid) is not None or name in present:
        raise errors.OperationFailed(
            f"{host} has a guest {name}, and files of a migration that was broken off: look "
            f"whose they are; salt {host} virt.undefine {name} leaves its disks"
        )
    mine = {os.path.basename(path) for path in left.created}
    if name in {one.name for one in reservations.there(peer, present, without=mine)}:
        raise errors.OperationFailed(f"{name} is on its way to {host} again: wait for it")
