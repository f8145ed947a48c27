"""A guest of this host moves to another one.

All of it is done from the guest's host, through the two libvirts: what the other host has
is asked, and made, over the same encrypted connection on which the guest then travels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors
from saltvirt.answers.migration import Certificate, Migratable, Recovered
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock, lookup
from saltvirt.host.migration import (
    facts,
    migration,
    move_journal,
    peer,
    recovery,
    reservations,
    unreachable_target,
)
from saltvirt.migration import checks, storage
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.options import MigrationSettings, Options
from saltvirt.migration.transport import Transport
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.settings import Connection


@dataclass(frozen=True)
class MigrationJob:
    """What to do. configured: this host's ``virt:migration``. local: our own libvirt; username and
    password are the target's. placement, ratios, limits, certificates, overcommit, unmounted: see
    checks.CheckedMigration. tell: called with a dict at each step: ``text``, and while data travels
    ``percent``, ``remaining_bytes``, ``speed``, ``dirty_rate``, ``elapsed_s``. given_up: called
    with the target's name before the guest goes on without it, as a person said that it is lost.
    """

    name: str
    transport: Transport
    options: Options
    configured: MigrationSettings = field(default_factory=MigrationSettings)
    username: str | None = None
    password: str | None = None
    local: Connection = field(default_factory=Connection)
    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    ratios: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    overcommit: bool = False
    unmounted: tuple[str, ...] = ()
    certificates: dict[str, dict[str, Certificate]] = field(default_factory=dict)
    journals: str = move_journal.FOLDER
    locks: str = guest_lock.FOLDER
    tell: Callable[[dict[str, Any]], None] = lambda event: None
    given_up: Callable[[str], object] = lambda host: None

    def peer(self) -> AbstractContextManager[libvirt.virConnect]:
        return peer.connect(self.transport, self.username, self.password)

    def say(self, text: str) -> None:
        self.tell({"text": text})


def migrate(conn: libvirt.virConnect, job: MigrationJob) -> Recovered:
    """Moves the guest: a Moved; a Recovered where an earlier attempt had moved it already.

    What an earlier attempt left half done is ended first. Raises NotFound,
    ConnectionFailed, MigrationFailed (TargetRefused when another target may take it): the guest is
    then where it was, and the target clean
    unless the message says what is left.
    """
    what = f"virt.migrate to {job.transport.host}"
    with (
        move_journal.Journal(job.journals, job.name) as journal,
        guest_lock.held(job.locks, what, job.name),
    ):
        ended = _end_earlier(conn, job, journal)
        if ended:
            return ended
        dom = lookup.lookup(conn, job.name)
        with _reached(job) as peer:
            _, _, still = unreachable_target.take_away(job, job.transport.host)
            for held in still.values():
                raise errors.MigrationFailed(f"{job.name} stays where it is: {held}")
            report, host, request = examine(dom, peer, job)
            standing = checks.standing(report, request)
            why = standing + checks.against(report, host, request)
            if why:  # what is against this target alone need not be against another
                kind: type[errors.MigrationFailed] = (
                    errors.MigrationFailed if standing else errors.TargetRefused
                )
                raise kind(f"{job.name} stays on {report.host}: " + "; ".join(why))
            ends = migration.Ends(conn, peer, dom)
            return migration.Migration(ends, report, host, request, job, journal).run()


def _end_earlier(
    conn: libvirt.virConnect, job: MigrationJob, journal: move_journal.Journal
) -> Recovered | None:
    """Ends what a killed migration of this guest began: its result if that has moved it."""
    if journal.read() is None:
        return None
    job.say("ending an earlier migration of this guest")
    outcome = unreachable_target.ended(conn, journal, job)
    for host in outcome.left_on:
        job.say(f"{host} does not answer: what it holds for {job.name} is taken away later")
    return outcome if outcome.outcome == recovery.MOVED else None


@contextlib.contextmanager
def _reached(job: MigrationJob) -> Iterator[libvirt.virConnect]:
    """The connection to the target for the block; without it the guest stays, and says so."""
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(job.peer())
        except errors.ConnectionFailed as exc:
            why = "; ".join(_unreachable(job, exc))
            raise errors.TargetRefused(f"{job.name} stays where it is: {why}") from exc
        yield peer


def _unreachable(job: MigrationJob, exc: Exception) -> list[str]:
    """Why there is no connection: what is known of certificates, then libvirt's words."""
    return [*checks.trust.wrong(job.certificates, job.transport), str(exc)]


def examine(
    dom: libvirt.virDomain, peer: libvirt.virConnect, job: MigrationJob
) -> tuple[GuestReport, TargetReport, checks.CheckedMigration]:
    """(the guest's report, the target's, the Request); changes nothing."""
    report = facts.guest(dom)
    with facts.marked(report) as marks:
        host = facts.target(peer, report, marks)
    coming = reservations.there(peer, {found.guest.name for found in host.domains})
    host = replace(host, reservations=tuple(coming))
    plans = storage.plan(report.disks, host.places, job.options.copy_storage)
    request = checks.CheckedMigration(
        job.options, job.transport, plans, job.placement, job.ratios, job.limits,
        job.certificates, job.overcommit, job.unmounted,
    )  # fmt: skip
    return report, host, request


def migratable(conn: libvirt.virConnect, job: MigrationJob, against: bool) -> Migratable:
    """The standing answer. against: also ask the target of the job."""
    dom = lookup.lookup(conn, job.name)
    if not against:
        request = checks.CheckedMigration(job.options, job.transport)
        why = checks.standing(facts.guest(dom), request)
        return Migratable(not why, tuple(why))
    shown = tuple(checks.trust.shown(job.certificates, job.transport))
    try:
        with job.peer() as peer:
            report, host, request = examine(dom, peer, job)
    except errors.ConnectionFailed as exc:
        return Migratable(False, tuple(_unreachable(job, exc)), certificates=shown)
    standing = checks.standing(report, request)
    why = standing + checks.against(report, host, request)
    disks = {plan.target: plan.how for plan in request.plans}
    return Migratable(not why, tuple(why), bool(standing), disks, shown)


def recover(
    conn: libvirt.virConnect,
    job: MigrationJob,
    lost: str | None = None,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> Recovered:
    """Ends a killed migration: see unreachable_target.ended; outcome "nothing" without one. Then
    hands over what earlier ones have left to hosts that did not answer."""
    with (
        move_journal.Journal(job.journals, job.name) as journal,
        guest_lock.held(job.locks, "virt.migrate_recover", job.name),
    ):
        done = Recovered(name=job.name, outcome=recovery.NOTHING)
        if journal.read() is not None:
            done = unreachable_target.ended(conn, journal, job, lost, elsewhere, removed)
        elif lost:
            raise errors.InvalidInput(f"no migration of {job.name} from here is unfinished")
        gone, kept, still = unreachable_target.take_away(job)
        kept = {**done.kept, **kept}
        return replace(done, deleted=(*done.deleted, *gone), kept=kept, left=still)
