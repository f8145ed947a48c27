"""A guest of this host moves to another one.

All of it is done from the guest's host, through the two libvirts: what the other host has
is asked, and made, over the same encrypted connection on which the guest then travels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace

from saltvirt import errors
from saltvirt.answers.migration import MigrationCheck, RecoveryResult
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock, lookup
from saltvirt.host.migration import (
    facts,
    migration,
    move_journal,
    recovery,
    reservations,
    unreachable_target,
)
from saltvirt.host.migration.job import MigrationJob
from saltvirt.migration import checks, storage
from saltvirt.migration.checks import request as request_module
from saltvirt.migration.facts import GuestReport, TargetReport


def migrate(conn: libvirt.virConnect, job: MigrationJob) -> RecoveryResult:
    """Moves the guest: a Moved; a Recovered where an earlier attempt had moved it already.

    What an earlier attempt left half done is ended first. Raises NotFound,
    ConnectionFailed, MigrationFailed (TargetRefused when another target may take it): the guest is
    then where it was, and the target clean
    unless the message says what is left.
    """
    operation = f"virt.migrate to {job.transport.host}"
    with (
        move_journal.MigrationJournal(job.journals, job.name) as journal,
        guest_lock.acquire(job.locks, operation, job.name),
    ):
        earlier = _end_earlier(conn, job, journal)
        if earlier:
            return earlier
        dom = lookup.lookup(conn, job.name)
        with _connected(job) as peer:
            _, _, unreachable = unreachable_target.hand_over(job, job.transport.host)
            for obstacle in unreachable.values():
                raise errors.MigrationFailed(f"{job.name} stays where it is: {obstacle}")
            report, host, request = examine(dom, peer, job)
            guest_reasons = checks.guest_reasons(report, request)
            reasons = guest_reasons + checks.target_reasons(report, host, request)
            if reasons:  # what is against this target alone need not be against another
                kind: type[errors.MigrationFailed] = (
                    errors.MigrationFailed if guest_reasons else errors.TargetRefused
                )
                raise kind(f"{job.name} stays on {report.host}: " + "; ".join(reasons))
            endpoints = migration.Endpoints(conn, peer, dom)
            return migration.Migration(endpoints, report, host, request, job, journal).run()


def _end_earlier(
    conn: libvirt.virConnect, job: MigrationJob, journal: move_journal.MigrationJournal
) -> RecoveryResult | None:
    """Ends what a killed migration of this guest began: its result if that has moved it."""
    if journal.read() is None:
        return None
    job.report_step("ending an earlier migration of this guest")
    outcome = unreachable_target.end_migration(conn, journal, job)
    for host in outcome.leftovers_by_host:
        job.report_step(f"{host} does not answer: what it holds for {job.name} is taken away later")
    return outcome if outcome.outcome == recovery.MOVED else None


@contextlib.contextmanager
def _connected(job: MigrationJob) -> Iterator[libvirt.virConnect]:
    """The connection to the target for the block; without it the guest stays, and says so."""
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(job.peer())
        except errors.ConnectionFailed as exc:
            reason = "; ".join(_unreachable(job, exc))
            raise errors.TargetRefused(f"{job.name} stays where it is: {reason}") from exc
        yield peer


def _unreachable(job: MigrationJob, exc: Exception) -> list[str]:
    """Why there is no connection: what is known of certificates, then libvirt's words."""
    return [*checks.trust.invalid_reasons(job.certificates, job.transport), str(exc)]


def examine(
    dom: libvirt.virDomain, peer: libvirt.virConnect, job: MigrationJob
) -> tuple[GuestReport, TargetReport, request_module.CheckedMigration]:
    """(the guest's report, the target's, the Request); changes nothing."""
    report = facts.guest(dom)
    with facts.marked(report) as marks:
        host = facts.target(peer, report, marks)
    arriving = reservations.remote(peer, {domain.guest.name for domain in host.domains})
    host = replace(host, reservations=tuple(arriving))
    plans = storage.plan(report.disks, host.locations, job.options.copy_storage)
    request = request_module.CheckedMigration(
        job.options, job.transport, plans, job.placement, job.ratios, job.limits,
        job.certificates, job.overcommit, job.unmounted,
    )  # fmt: skip
    return report, host, request


def migratable(conn: libvirt.virConnect, job: MigrationJob, check_target: bool) -> MigrationCheck:
    """The standing answer. check_target: also ask the target of the job."""
    dom = lookup.lookup(conn, job.name)
    if not check_target:
        request = request_module.CheckedMigration(job.options, job.transport)
        reasons = checks.guest_reasons(facts.guest(dom), request)
        return MigrationCheck(not reasons, tuple(reasons))
    certificates = tuple(checks.trust.required(job.certificates, job.transport))
    try:
        with job.peer() as peer:
            report, host, request = examine(dom, peer, job)
    except errors.ConnectionFailed as exc:
        return MigrationCheck(False, tuple(_unreachable(job, exc)), certificates=certificates)
    guest_reasons = checks.guest_reasons(report, request)
    reasons = guest_reasons + checks.target_reasons(report, host, request)
    disks = {plan.target: plan.method for plan in request.plans}
    return MigrationCheck(not reasons, tuple(reasons), bool(guest_reasons), disks, certificates)


def recover(
    conn: libvirt.virConnect,
    job: MigrationJob,
    lost: str | None = None,
    elsewhere: Collection[str] = (),
    removed: bool = False,
) -> RecoveryResult:
    """Ends a killed migration: see unreachable_target.ended; outcome "nothing" without one. Then
    hands over what earlier ones have left to hosts that did not answer."""
    with (
        move_journal.MigrationJournal(job.journals, job.name) as journal,
        guest_lock.acquire(job.locks, "virt.migrate_recover", job.name),
    ):
        result = RecoveryResult(name=job.name, outcome=recovery.NOTHING)
        if journal.read() is not None:
            result = unreachable_target.end_migration(conn, journal, job, lost, elsewhere, removed)
        elif lost:
            raise errors.InvalidInput(f"no migration of {job.name} from here is unfinished")
        deleted, retained, unreachable = unreachable_target.hand_over(job)
        retained = {**result.kept, **retained}
        return replace(result, deleted=(*result.deleted, *deleted), kept=retained, left=unreachable)
