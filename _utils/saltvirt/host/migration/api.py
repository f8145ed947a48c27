"""Migrate a guest of this host to another one.

Everything is done from the guest's host through the two libvirts: the target is queried and
prepared over the same encrypted connection over which the guest is sent.
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
    """Migrate the guest. Return a MigrationResult, or a RecoveryResult if an earlier attempt had
    moved it already.

    An incomplete earlier attempt is ended first. Raises NotFound, ConnectionFailed, MigrationFailed
    (TargetRefused if another target may accept the guest): the guest is then where it was, and the
    target is clean unless the message names what is left.
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
                raise errors.MigrationFailed(f"cannot migrate {job.name}: {obstacle}")
            report, host, request = examine(dom, peer, job)
            guest_reasons = checks.guest_reasons(report, request)
            reasons = guest_reasons + checks.target_reasons(report, host, request)
            if reasons:  # reasons against this target alone need not apply to another one
                kind: type[errors.MigrationFailed] = (
                    errors.MigrationFailed if guest_reasons else errors.TargetRefused
                )
                raise kind(f"cannot migrate {job.name} from {report.host}: " + "; ".join(reasons))
            endpoints = migration.Endpoints(conn, peer, dom)
            return migration.Migration(endpoints, report, host, request, job, journal).run()


def _end_earlier(
    conn: libvirt.virConnect, job: MigrationJob, journal: move_journal.MigrationJournal
) -> RecoveryResult | None:
    """End an interrupted migration of this guest; return its result if it has moved the guest."""
    if journal.read() is None:
        return None
    job.report_step("completing an earlier migration of this guest")
    outcome = unreachable_target.end_migration(conn, journal, job)
    for host in outcome.leftovers_by_host:
        job.report_step(f"{host} does not answer: its leftovers of {job.name} are removed later")
    return outcome if outcome.outcome == recovery.MOVED else None


@contextlib.contextmanager
def _connected(job: MigrationJob) -> Iterator[libvirt.virConnect]:
    """Connect to the target for the block. Without a connection, raise TargetRefused with the
    reason."""
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(job.peer())
        except errors.ConnectionFailed as exc:
            reason = "; ".join(_unreachable(job, exc))
            raise errors.TargetRefused(f"cannot migrate {job.name}: {reason}") from exc
        yield peer


def _unreachable(job: MigrationJob, exc: Exception) -> list[str]:
    """Return why there is no connection: invalid certificates, then libvirt's message."""
    return [*checks.trust.invalid_reasons(job.certificates, job.transport), str(exc)]


def examine(
    dom: libvirt.virDomain, peer: libvirt.virConnect, job: MigrationJob
) -> tuple[GuestReport, TargetReport, request_module.CheckedMigration]:
    """Return (the guest's report, the target's report, the CheckedMigration); change nothing."""
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
    """Return whether the guest can migrate. check_target: also query the target of the job."""
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
    """End an interrupted migration, see unreachable_target.end_migration; the outcome is "nothing"
    without one. Then hand over what earlier migrations have left on hosts that did not answer."""
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
        retained = {**result.retained, **retained}
        return replace(
            result, deleted=(*result.deleted, *deleted), retained=retained, leftovers=unreachable
        )
