"""One migration, from checked facts to a verified end, or back to its beginning."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.answers.migration import MigrationResult
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import checkpoints
from saltvirt.host.migration import (
    confirm,
    departures,
    live,
    offline,
    peer,
    prepare,
    progress,
    recovery,
    remote_storage,
    reservations,
    target_files,
)
from saltvirt.host.storage import files, unchanged_disks
from saltvirt.migration import flags, policy, reservation, storage
from saltvirt.migration.checks.request import CheckedMigration
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.journal import MOVED, MOVING, PREPARING, JournalEntry, PendingFile
from saltvirt.migration.options import is_not_live
from saltvirt.migration.policy import Progress

if TYPE_CHECKING:
    from saltvirt.host.migration.job import MigrationJob
    from saltvirt.host.migration.move_journal import MigrationJournal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoints:
    """The connections to both libvirts, and the guest's domain on the source."""

    conn: libvirt.virConnect
    peer: libvirt.virConnect
    dom: libvirt.virDomain


class Migration:
    """report, host: the reports of both hosts; request: the CheckedMigration."""

    def __init__(
        self,
        endpoints: Endpoints,
        report: GuestReport,
        host: TargetReport,
        request: CheckedMigration,
        job: MigrationJob,
        journal: MigrationJournal,
    ):
        self.conn, self.peer, self.dom = endpoints.conn, endpoints.peer, endpoints.dom
        self.report, self.host, self.request = report, host, request
        self.plans, self.copied_plans = request.plans, storage.copied_plans(request.plans)
        self.job, self.journal = job, journal
        self.not_live = is_not_live(job.options, report.virt_type)
        self.reservation = reservations.reservation_path(report, request.plans)
        self.renewed_at_s = 0.0
        self.entry = JournalEntry(
            report, job.transport.uri, PREPARING, source_files=tuple(self._source_files()),
            keep_source=job.options.keep_source or not job.options.undefinesource,
            xml=offline.definition(self.dom), checkpoints=checkpoints.texts(self.dom),
        )  # fmt: skip

    def run(self) -> MigrationResult:
        """Return the result of virt.migrate. Raises MigrationFailed; the guest is then where it
        was."""
        self._write()
        with contextlib.ExitStack() as stack:
            try:
                target_dom = self._do(stack)
            except BaseException as exc:
                return self._failed(exc)
            self._note_moved(phase=MOVED)
        # our locks on the disks are released: any lock now belongs to another process
        return self._clean(self._result(target_dom))

    def _do(self, stack: contextlib.ExitStack) -> libvirt.virDomain:
        active = self.report.active
        self._write(created=(self.reservation,))
        self.renewed_at_s = time.monotonic()
        reservations.reserve(self.peer, self.reservation, self.report, self.host, self.request)
        watch = progress.Watch(
            self.journal, self.job.notify, self._renew_reservation, self._max_bytes_s()
        )
        target = target_files.MigrationTarget(self.peer, self._note, self.job.report_step, watch)
        prepare.disks(target, self.plans, active)
        if active:
            variables = self._own_variables()
            if variables:
                prepare.variables(target, variables)
            watch.check_abort()
            self._write(phase=MOVING)
            confirm.disable_autostart(self.dom, self.report)
            self._live()
        else:
            self._cold(target, stack)
        target_dom = confirm.confirm(self.conn, self.peer, self.report, self.job.options.persistent)
        if not active and self.job.options.undefinesource:
            recovery.undefine(self.dom)
        confirm.transfer_autostart(self.conn, self.peer, self.report)
        return target_dom

    def _max_bytes_s(self) -> int | None:
        """Return the maximum bytes per second, also for copies that libvirt does not make."""
        mib_s = self.job.options.max_bandwidth or self.job.configured.bandwidth
        return mib_s * flags.MIB if mib_s else None

    def _cold(self, target: target_files.MigrationTarget, stack: contextlib.ExitStack) -> None:
        """Move the guest as files. Until the source has forgotten the guest, its disks are
        locked."""
        disks = [path for plan in self.plans for path in plan.source_files]
        unchanged = stack.enter_context(unchanged_disks.UnchangedDisks(self.report.name, disks))
        offline.still_off(self.dom)
        offline.copy(target, self.report, self.plans, self._own_variables())
        unchanged.check()
        fingerprints = {
            path: remote_storage.fingerprint(self.peer, path) for path in target.created
        }
        self._write(phase=MOVING, fingerprints=fingerprints)
        offline.define(target, self.dom, self.report, self.host)

    def _note(
        self, target: target_files.MigrationTarget, making: PendingFile | None = None
    ) -> None:
        """Record what was created on the target so far. making: see MigrationTarget."""
        created = (self.reservation, *target.created)
        self._write(created=created, folders=tuple(target.folders), making=making)

    def _write(self, **changes: Any) -> None:
        self.entry = replace(self.entry, **changes)
        self.journal.write(self.entry)

    def _note_moved(self, **changes: Any) -> None:
        """Record a guest that has moved. A full disk does not undo that: recovery finds the guest
        with the previous record."""
        try:
            self._write(**changes)
        except errors.OperationFailed as exc:
            self.job.report_step(
                f"{self.report.name} was migrated, but that could not be recorded: {exc}"
            )

    def _pausing(self, step: str) -> None:
        self._write(pause=step)

    def _source_files(self) -> list[str]:
        """Return the guest's files that remain on the source."""
        variables = self._own_variables()
        paths = [path for plan in self.plans for path in plan.source_files]
        is_own = variables and files.are_own_variables(variables, self.report.name)
        return [*paths, variables] if variables and is_own else paths

    def _own_variables(self) -> str | None:
        """Return the file of firmware variables, unless the hosts share it."""
        store = self.report.nvram
        return store if store and not self.host.location(store).shared else None

    def _live(self) -> None:
        options = self.job.options
        size = self.report.memory_kib * 1024 + sum(plan.moved_bytes for plan in self.copied_plans)
        configured = self.job.configured
        if options.timeout:
            configured = replace(configured, timeout=options.timeout)
        if options.max_bandwidth:
            configured = replace(configured, bandwidth=options.max_bandwidth)
        disks = [plan.target for plan in self.copied_plans]
        zeroes = flags.discarding(self.report, self.host, disks)
        transport, hostname = self.job.transport, self.host.hostname
        destination = flags.tls_destination(transport, hostname, self.job.certificates)
        names = flags.flags(
            options, transport, storage.mode(self.plans), live=not self.not_live,
            proven_shared=storage.is_proven_shared(self.plans),
        )  # fmt: skip
        job = live.Job(
            uri=peer.batch(transport),
            flags=frozenset(names),
            parameters=flags.parameters(options, disks, configured, zeroes, destination),
            policy=policy.limits(size, configured, "safe" if self.not_live else options.policy),
            max_downtime=options.max_downtime,
            pausing=self._pausing,
        )
        note = _NOT_LIVE if self.not_live else ""
        self.job.report_step(
            f"migrating {self.report.name} from {self.report.host} to {hostname} over "
            f"{transport.description}{note}"
        )
        try:
            live.perform(self.dom, job, self._on_progress)
        except errors.TargetRefused as exc:
            if self.journal.abort_requested():
                raise errors.MigrationFailed(exc.text) from exc
            raise

    def _renew_reservation(self) -> None:
        """Renew the reservation; otherwise it expires one hour after this process has died."""
        if time.monotonic() - self.renewed_at_s > reservation.RENEW_S:
            self.renewed_at_s = time.monotonic()
            try:
                reservations.renew(self.peer, self.reservation)
            except errors.VirtError as exc:
                log.info("the reservation on %s is renewed later: %s", self.report.name, exc)

    def _on_progress(self, progress: Progress, elapsed_s: float, reason: str | None) -> None:
        self._renew_reservation()
        self.job.notify({
            "text": reason, "percent": progress.percent, "remaining_bytes": progress.remaining,
            "speed": progress.speed, "dirty_rate": progress.dirty_rate,
            "elapsed_s": round(elapsed_s, 1),
        })  # fmt: skip

    def _failed(self, exc: BaseException) -> MigrationResult:
        """Roll back. Return the result if libvirt has moved the guest nevertheless."""
        try:
            recovery.refuse_foreign(self.conn, self.peer, self.entry)
            outcome = recovery.resolve(self.conn, self.peer, self.report)
            if outcome == recovery.MOVED:
                confirm.transfer_autostart(self.conn, self.peer, self.report)
        except errors.MigrationFailed as unsure:
            raise errors.MigrationFailed(f"{_message(exc)}; {unsure}") from exc
        except errors.VirtError:
            return self._reconnected(exc)
        if outcome == recovery.MOVED:
            return self._clean(self._result(self._target_domain()))
        try:
            _, retained = recovery.undo_target(self.peer, self.entry.target_files)
        except errors.VirtError as unclean:
            raise self._stays(exc, f"not removed: {unclean}; {_RETRY_HINT}") from exc
        try:
            recovery.resume_source(self.conn, self.report, self.entry.pause)
        except errors.VirtError as unsure:  # the journal stays, so that recovery tries again
            raise errors.MigrationFailed(f"{_message(exc)}; {unsure}") from exc
        self.journal.close()
        if not isinstance(exc, Exception):
            raise exc
        raise self._stays(exc, self._describe_retained(retained)) from exc

    def _target_domain(self) -> libvirt.virDomain | None:
        """Return the guest's domain on the target, for its statistics; None without one."""
        with contextlib.suppress(libvirt.libvirtError):
            return confirm.find(self.peer, self.report.uuid)
        return None

    def _describe_retained(self, retained: dict[str, str]) -> str:
        return "; ".join(
            f"{path} on {self.host.hostname}: {reason}" for path, reason in retained.items()
        )

    def _reconnected(self, exc: BaseException) -> MigrationResult:
        """Query both hosts again for a while, after a connection was lost or while a host cleans
        up."""
        self.job.report_step("querying both hosts again")
        try:
            result = recovery.retry(self.journal, self.job)
        except errors.VirtError as unsure:
            raise errors.MigrationFailed(f"{_message(exc)}; {unsure}; {_RETRY_HINT}") from exc
        if result.outcome == recovery.MOVED:
            return replace(self._result(None), **vars(result))
        raise self._stays(exc, self._describe_retained(result.retained)) from exc

    def _stays(self, exc: BaseException, detail: str | None = None) -> errors.MigrationFailed:
        verb = "runs" if self.report.active else "stays"
        text = f"{_message(exc)}; {self.report.name} {verb} on {self.report.host}"
        refused = isinstance(exc, errors.TargetRefused)
        kind = errors.TargetRefused if refused else errors.MigrationFailed
        return kind(f"{text}; {detail}" if detail else text)

    def _result(self, target_dom: libvirt.virDomain | None) -> MigrationResult:
        stats = live.completed(target_dom) if target_dom and self.report.active else {}
        return MigrationResult(
            name=self.report.name,
            outcome=recovery.MOVED,
            source=self.report.host,
            target=self.host.hostname,
            live=self.report.active and not self.not_live,
            transport=self.job.transport.description,
            time_ms=stats.get("time_elapsed"),
            downtime_ms=stats.get("downtime"),
            memory_bytes=stats.get("memory_processed"),
            disk_bytes=sum(plan.moved_bytes for plan in self.copied_plans),
            disks={plan.target: plan.method for plan in self.plans},
        )

    def _clean(self, result: MigrationResult) -> MigrationResult:
        """Remove what the guest left on the source; the migration has succeeded in any case."""
        departures.record_departure(self.report.name, self.host.hostname)
        lost_checkpoints = confirm.send_checkpoints(self.peer, self.entry)
        deleted: list[str] = []
        retained: dict[str, str] = {}
        if not self.entry.keep_source:
            deleted, retained = confirm.remove_source(
                self.conn, self.report, self.entry.source_files
            )
        self._complete()
        lost = lost_checkpoints or None
        return replace(result, deleted=tuple(deleted), retained=retained, checkpoints_lost=lost)

    def _complete(self) -> None:
        """Release the reservation, as the guest itself counts on the target now. If the target
        cannot be reached, the journal keeps only that for virt.repair."""
        self._note_moved(
            completed=True, created=(self.reservation,), making=None, folders=(), fingerprints=None
        )
        try:
            with translated():
                alive = self.peer.isAlive()
            if alive:
                reservations.release(self.peer, [self.reservation])
                self.journal.close()
            else:
                recovery.recover(self.conn, self.journal, self.job)
        except errors.VirtError as exc:
            self.job.report_step(
                f"{self.host.hostname} keeps {self.reservation}: {exc}; {_RETRY_HINT}"
            )


_NOT_LIVE = "; it runs without KVM, so it is paused while its memory is transferred"
_RETRY_HINT = "run virt.migrate again, or virt.repair, when the hosts can reach each other"


def _message(exc: BaseException) -> str:
    """Return the error message for the operator."""
    return str(exc) or type(exc).__name__
