"""One migration, from checked facts to a verified end or back to where it began."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.answers.migration import Moved
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import checkpoints
from saltvirt.host.migration import (
    confirm,
    departed,
    live,
    offline,
    peer,
    prepare,
    progress,
    recovery,
    remote_storage,
    reservations,
)
from saltvirt.host.storage import files, unchanged_disks
from saltvirt.migration import flags, policy, reservation, storage
from saltvirt.migration.checks import CheckedMigration
from saltvirt.migration.facts import GuestReport, TargetReport
from saltvirt.migration.journal import BEGUN, MOVED, MOVING, JournalEntry, PendingFile
from saltvirt.migration.options import is_not_live
from saltvirt.migration.policy import Progress

if TYPE_CHECKING:
    from saltvirt.host.migration.api import MigrationJob
    from saltvirt.host.migration.move_journal import Journal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ends:
    """The connections to both libvirts, and the guest's domain here."""

    conn: libvirt.virConnect
    peer: libvirt.virConnect
    dom: libvirt.virDomain


class Migration:
    """report, host: what both ends told; request: the checks' CheckedMigration."""

    def __init__(
        self,
        ends: Ends,
        report: GuestReport,
        host: TargetReport,
        request: CheckedMigration,
        job: MigrationJob,
        journal: Journal,
    ):
        self.conn, self.peer, self.dom = ends.conn, ends.peer, ends.dom
        self.report, self.host, self.request = report, host, request
        self.plans, self.copied = request.plans, storage.copied(request.plans)
        self.job, self.journal = job, journal
        self.not_live = is_not_live(job.options, report.virt_type)
        self.reservation, self.renewed = reservations.place(report, request.plans), 0.0
        self.entry = JournalEntry(
            report, job.transport.uri, BEGUN, left=tuple(self._left()),
            keep_source=job.options.keep_source or not job.options.undefinesource,
            xml=offline.definition(self.dom), checkpoints=checkpoints.texts(self.dom),
        )  # fmt: skip

    def run(self) -> Moved:
        """What virt.migrate returns. Raises MigrationFailed; the guest is then where it was."""
        self._write()
        with contextlib.ExitStack() as held:
            try:
                there = self._do(held)
            except BaseException as exc:
                return self._failed(exc)
            self._note_moved(phase=MOVED)
        # nothing of ours holds the disks any more: who does now is somebody else
        return self._clean(self._result(there))

    def _do(self, held: contextlib.ExitStack) -> libvirt.virDomain:
        active = self.report.active
        self._write(created=(self.reservation,))
        self.renewed = time.monotonic()
        reservations.reserve(self.peer, self.reservation, self.report, self.host, self.request)
        watch = progress.Watch(self.journal, self.job.tell, self._beat, self._bytes_s())
        target = prepare.Target(self.peer, self._note, self.job.say, watch)
        prepare.disks(target, self.plans, active)
        if active:
            variables = self._own_variables()
            if variables:
                prepare.variables(target, variables)
            watch.end_if_asked()
            self._write(phase=MOVING)
            confirm.not_by_itself(self.dom, self.report)
            self._live()
        else:
            self._cold(target, held)
        there = confirm.confirm(self.conn, self.peer, self.report, self.job.options.persistent)
        if not active and self.job.options.undefinesource:
            recovery.undefine(self.dom)
        confirm.autostart(self.conn, self.peer, self.report)
        return there

    def _bytes_s(self) -> int | None:
        """How much may be sent in a second, also by what is no copy of libvirt's."""
        mib_s = self.job.options.max_bandwidth or self.job.configured.bandwidth
        return mib_s * flags.MIB if mib_s else None

    def _cold(self, target: prepare.Target, held: contextlib.ExitStack) -> None:
        """Moves files. Until the guest is forgotten here, whoever starts it is kept out."""
        disks = [path for plan in self.plans for path in plan.left]
        unchanged = held.enter_context(unchanged_disks.Unchanged(self.report.name, disks))
        offline.still_off(self.dom)
        offline.copy(target, self.report, self.plans, self._own_variables())
        unchanged.check()
        looks = {path: remote_storage.look(self.peer, path) for path in target.made}
        self._write(phase=MOVING, looks=looks)
        offline.define(target, self.dom, self.report, self.host)

    def _note(self, target: prepare.Target, making: PendingFile | None = None) -> None:
        """Writes down what was made on the target so far. making: see prepare.Target."""
        created = (self.reservation, *target.made)
        self._write(created=created, folders=tuple(target.folders), making=making)

    def _write(self, **changes: Any) -> None:
        self.entry = replace(self.entry, **changes)
        self.journal.write(self.entry)

    def _note_moved(self, **changes: Any) -> None:
        """The same of a guest that has moved, which a full disk here does not undo: by what was
        written before, whoever ends it finds the guest."""
        try:
            self._write(**changes)
        except errors.OperationFailed as exc:
            self.job.say(f"{self.report.name} has moved, and that is not written down: {exc}")

    def _pausing(self, step: str) -> None:
        self._write(pause=step)

    def _left(self) -> list[str]:
        """The files of the guest that stay here when the guest is gone."""
        variables = self._own_variables()
        found = [path for plan in self.plans for path in plan.left]
        own = variables and files.are_own_variables(variables, self.report.name)
        return [*found, variables] if variables and own else found

    def _own_variables(self) -> str | None:
        """The file of the firmware's variables, where the hosts do not share it."""
        store = self.report.nvram
        return store if store and not self.host.place(store).shared else None

    def _live(self) -> None:
        options = self.job.options
        size = self.report.memory_kib * 1024 + sum(plan.moved_bytes for plan in self.copied)
        configured = self.job.configured
        if options.timeout:
            configured = replace(configured, timeout=options.timeout)
        if options.max_bandwidth:
            configured = replace(configured, bandwidth=options.max_bandwidth)
        disks = [plan.target for plan in self.copied]
        zeroes = flags.discarding(self.report, self.host, disks)
        job = live.Job(
            uri=peer.batch(self.job.transport),
            flags=frozenset(
                flags.flags(
                    options,
                    self.job.transport,
                    storage.mode(self.plans),
                    live=not self.not_live,
                    proven=storage.proven(self.plans),
                )
            ),
            parameters=flags.parameters(
                options,
                disks,
                configured,
                zeroes,
                flags.tls_destination(
                    self.job.transport, self.host.hostname, self.job.certificates
                ),
            ),
            policy=policy.limits(size, configured, "safe" if self.not_live else options.policy),
            max_downtime=options.max_downtime,
            pausing=self._pausing,
        )
        why = _NOT_LIVE if self.not_live else ""
        self.job.say(
            f"moving {self.report.name} from {self.report.host} to "
            f"{self.host.hostname} over {self.job.transport.words}{why}"
        )
        try:
            live.perform(self.dom, job, self._watch)
        except errors.TargetRefused as exc:
            if self.journal.is_to_end():
                raise errors.MigrationFailed(exc.text) from exc
            raise

    def _beat(self) -> None:
        """Renews the reservation: without that it ends, an hour after this process has died."""
        if time.monotonic() - self.renewed > reservation.RENEW_S:
            self.renewed = time.monotonic()
            try:
                reservations.renew(self.peer, self.reservation)
            except errors.VirtError as exc:
                log.info("the reservation to %s is renewed later: %s", self.report.name, exc)

    def _watch(self, progress: Progress, elapsed_s: float, reason: str | None) -> None:
        self._beat()
        self.job.tell(
            {
                "text": reason,
                "percent": progress.percent,
                "remaining_bytes": progress.remaining,
                "speed": progress.speed,
                "dirty_rate": progress.dirty_rate,
                "elapsed_s": round(elapsed_s, 1),
            }
        )

    def _failed(self, exc: BaseException) -> Moved:
        """Back to where it began. Returns the result when libvirt has moved it all the same."""
        try:
            recovery.not_run_there(self.conn, self.peer, self.entry)
            outcome = recovery.resolve(self.conn, self.peer, self.report)
            if outcome == recovery.MOVED:
                confirm.autostart(self.conn, self.peer, self.report)
        except errors.MigrationFailed as unsure:
            raise errors.MigrationFailed(f"{_words(exc)}; {unsure}") from exc
        except errors.VirtError:
            return self._reconnected(exc)
        if outcome == recovery.MOVED:
            return self._clean(self._result(self._there()))
        try:
            _, kept = recovery.cleaned(self.peer, self.entry.made)
        except errors.VirtError as unclean:
            raise self._stays(exc, f"not cleaned: {unclean}; {_AGAIN}") from exc
        try:
            recovery.run_on(self.conn, self.report, self.entry.pause)
        except errors.VirtError as unsure:  # the journal stays: who ends it tries again
            raise errors.MigrationFailed(f"{_words(exc)}; {unsure}") from exc
        self.journal.close()
        if not isinstance(exc, Exception):
            raise exc
        raise self._stays(exc, self._left_there(kept)) from exc

    def _there(self) -> libvirt.virDomain | None:
        """The guest's domain on the target, for what it tells of the move; None without one."""
        with contextlib.suppress(libvirt.libvirtError):
            return confirm.find(self.peer, self.report.uuid)
        return None

    def _left_there(self, kept: dict[str, str]) -> str:
        return "; ".join(f"{path} on {self.host.hostname}: {why}" for path, why in kept.items())

    def _reconnected(self, exc: BaseException) -> Moved:
        """A connection is gone, or a host is just tidying up: ask both anew, for a while."""
        self.job.say("asking both hosts again")
        try:
            done = recovery.retry(self.journal, self.job)
        except errors.VirtError as unsure:
            raise errors.MigrationFailed(f"{_words(exc)}; {unsure}; {_AGAIN}") from exc
        if done.outcome == recovery.MOVED:
            return replace(self._result(None), **vars(done))
        raise self._stays(exc, self._left_there(done.kept)) from exc

    def _stays(self, exc: BaseException, more: str | None = None) -> errors.MigrationFailed:
        verb = "runs" if self.report.active else "stays"
        text = f"{_words(exc)}; {self.report.name} {verb} on {self.report.host}"
        refused = isinstance(exc, errors.TargetRefused)
        kind: type[errors.MigrationFailed] = (
            errors.TargetRefused if refused else errors.MigrationFailed
        )
        return kind(f"{text}; {more}" if more else text)

    def _result(self, there: libvirt.virDomain | None) -> Moved:
        done = live.completed(there) if there and self.report.active else {}
        return Moved(
            name=self.report.name,
            outcome=recovery.MOVED,
            source=self.report.host,
            target=self.host.hostname,
            live=self.report.active and not self.not_live,
            transport=self.job.transport.words,
            time_ms=done.get("time_elapsed"),
            downtime_ms=done.get("downtime"),
            memory_bytes=done.get("memory_processed"),
            disk_bytes=sum(plan.moved_bytes for plan in self.copied),
            disks={plan.target: plan.how for plan in self.plans},
        )

    def _clean(self, moved: Moved) -> Moved:
        """Removes what the guest left here; the move stands, whatever becomes of this."""
        departed.note(self.report.name, self.host.hostname)
        lost = confirm.checkpoints(self.peer, self.entry)
        deleted: list[str] = []
        kept: dict[str, str] = {}
        if not self.entry.keep_source:
            deleted, kept = confirm.remove_source(self.conn, self.report, self.entry.left)
        self._over()
        moved = replace(moved, checkpoints_lost=lost or None)
        return replace(moved, deleted=tuple(deleted), kept=kept)

    def _over(self) -> None:
        """Releases the reservation: the guest is there and counts as what it is. Where the target
        cannot be reached any more, the journal keeps just that for virt.repair."""
        self._note_moved(
            over=True, created=(self.reservation,), making=None, folders=(), looks=None
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
            self.job.say(f"{self.host.hostname} keeps {self.reservation}: {exc}; {_AGAIN}")


_NOT_LIVE = "; its CPU is emulated, without KVM: it is paused while its memory is moved"
_AGAIN = "call virt.migrate again, or virt.repair, when the hosts reach each other"


def _words(exc: BaseException) -> str:
    """What went wrong, for the user."""
    return str(exc) or type(exc).__name__
