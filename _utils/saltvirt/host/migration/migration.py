"""One migration, from checked facts to a verified end or back to where it began."""

import contextlib
import logging
import time
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import (
    confirm,
    departed,
    live,
    move_journal,
    offline,
    peer,
    prepare,
    progress,
    recovery,
    remote_storage,
    reservations,
)
from saltvirt.host.storage import unchanged_disks
from saltvirt.migration import flags, policy, reservation, storage
from saltvirt.migration import options as wishes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ends:
    """The connections to both libvirts, and the guest's domain here."""

    conn: object
    peer: object
    dom: object


class Migration:
    """report, host: what both ends told; request: the checks' Request; job: a api.MigrationJob."""

    def __init__(self, ends, report, host, request, job, journal):
        self.conn, self.peer, self.dom = ends.conn, ends.peer, ends.dom
        self.report, self.host, self.request = report, host, request
        self.plans, self.copied = request.plans, storage.copied(request.plans)
        self.job, self.journal = job, journal
        self.not_live = wishes.is_not_live(job.options, report["virt_type"])
        self.reservation, self.renewed = None, 0
        self.phase, self.pause = move_journal.BEGUN, None
        self.made, self.folders, self.looks = [], [], {}
        self.xml = offline.definition(self.dom)

    def run(self):
        """What virt.migrate returns. Raises MigrationFailed; the guest is then where it was."""
        self._write()
        with contextlib.ExitStack() as held:
            try:
                there = self._do(held)
            except BaseException as exc:
                return self._failed(exc)
            self._at(move_journal.MOVED)
        # nothing of ours holds the disks any more: who does now is somebody else
        return {**self._result(there), **self._clean()}

    def _do(self, held):
        active = self.report["active"]
        self.reservation = reservations.place(self.report, self.plans)
        self._write()
        self.renewed = time.monotonic()
        reservations.reserve(self.peer, self.reservation, self.report, self.host, self.request)
        watch = progress.Watch(self.journal, self.job.tell, self._beat)
        target = prepare.Target(self.peer, self._note, self.job.say, watch)
        prepare.disks(target, self.plans, active)
        if active:
            if self._own_variables():
                prepare.variables(target, self.report["nvram"])
            watch.end_if_asked()
            self._at(move_journal.MOVING)
            self._live()
        else:
            self._cold(target, held)
        there = confirm.confirm(self.conn, self.peer, self.report, self.job.options.persistent)
        if not active and self.job.options.undefinesource:
            recovery.undefine(self.dom)
        confirm.autostart(self.conn, self.peer, self.report)
        return there

    def _cold(self, target, held):
        """Moves files. Until the guest is forgotten here, whoever starts it is kept out."""
        disks = [path for plan in self.plans for path in plan.left]
        unchanged = held.enter_context(unchanged_disks.Unchanged(self.report["name"], disks))
        offline.still_off(self.dom)
        offline.copy(target, self.report, self.plans, self._own_variables())
        unchanged.check()
        self.looks = {path: remote_storage.look(self.peer, path) for path in self.made}
        self._at(move_journal.MOVING)
        offline.define(target, self.dom, self.report, self.host)

    def _note(self, target, making=None):
        """Writes down what was made on the target so far. making: see prepare.Target."""
        self.made, self.folders = list(target.made), list(target.folders)
        self._write(making)

    def _write(self, making=None):
        self.journal.write(
            phase=self.phase,
            report=self.report,
            target=self.job.transport.uri,
            created=[*([self.reservation] if self.reservation else []), *self.made],
            making=making,
            folders=self.folders,
            looks=self.looks,
            pause=self.pause,
            left=self._left(),
            keep_source=self._keeps_source(),
            xml=self.xml,
        )

    def _at(self, phase):
        self.phase = phase
        self._write()

    def _pausing(self, step):
        self.pause = step
        self._write()

    def _left(self):
        """The files that stay here when the guest is gone."""
        found = [path for plan in self.plans for path in plan.left]
        if self._own_variables():
            found.append(self.report["nvram"])
        return found

    def _own_variables(self):
        """Whether the firmware's variables are a file that both hosts do not share."""
        store = self.report["nvram"]
        return bool(store) and not self.host["paths"].get(store, {}).get("shared")

    def _keeps_source(self):
        options = self.job.options
        return options.keep_source or not options.undefinesource

    def _live(self):
        options = self.job.options
        size = self.report["memory_kib"] * 1024 + sum(plan.moved_bytes for plan in self.copied)
        network = {**self.job.network, **({"timeout": options.timeout} if options.timeout else {})}
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
            parameters=flags.parameters(options, disks, self.job.network, zeroes),
            policy=policy.limits(size, network, "safe" if self.not_live else options.policy),
            max_downtime=options.max_downtime,
            pausing=self._pausing,
        )
        why = _NOT_LIVE if self.not_live else ""
        self.job.say(
            f"moving {self.report['name']} from {self.report['host']} to "
            f"{self.host['hostname']} over {self.job.transport.words}{why}"
        )
        live.perform(self.dom, job, self._watch)

    def _beat(self):
        """Renews the reservation: without that it ends, an hour after this process has died."""
        if time.monotonic() - self.renewed > reservation.RENEW_S:
            self.renewed = time.monotonic()
            try:
                reservations.renew(self.peer, self.reservation)
            except errors.VirtError as exc:
                log.info("the reservation to %s is renewed later: %s", self.report["name"], exc)

    def _watch(self, progress, elapsed_s, reason):
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

    def _failed(self, exc):
        """Back to where it began. Returns the result when libvirt has moved it all the same."""
        try:
            recovery.not_run_there(self.conn, self.peer, self.journal.read())
            outcome = recovery.resolve(self.conn, self.peer, self.report)
            if outcome == recovery.MOVED:
                confirm.autostart(self.conn, self.peer, self.report)
        except errors.MigrationFailed as unsure:
            raise errors.MigrationFailed(f"{_words(exc)}; {unsure}") from exc
        except errors.VirtError:
            return self._reconnected(exc)
        if outcome == recovery.MOVED:
            return {**self._result(self._there()), **self._clean()}
        try:
            _, kept = recovery.cleaned(self.peer, self.journal.read())
        except errors.VirtError as unclean:
            raise self._stays(exc, f"not cleaned: {unclean}; {_AGAIN}") from exc
        recovery.run_on(self.conn, {"report": self.report, "pause": self.pause})
        self.journal.close()
        if not isinstance(exc, Exception):
            raise exc
        raise self._stays(exc, self._left_there(kept)) from exc

    def _there(self):
        """The guest's domain on the target, for what it tells of the move; None without one."""
        with contextlib.suppress(libvirt.libvirtError):
            return confirm.find(self.peer, self.report["uuid"])
        return None

    def _left_there(self, kept):
        return "; ".join(f"{path} on {self.host['hostname']}: {why}" for path, why in kept.items())

    def _reconnected(self, exc):
        """A connection is gone, or a host is just tidying up: ask both anew, for a while."""
        self.job.say("asking both hosts again")
        try:
            done = recovery.retry(self.journal, self.job)
        except errors.VirtError as unsure:
            raise errors.MigrationFailed(f"{_words(exc)}; {unsure}; {_AGAIN}") from exc
        if done["outcome"] == recovery.MOVED:
            return {**self._result(None), **done}
        raise self._stays(exc, self._left_there(done["kept"])) from exc

    def _stays(self, exc, more=None):
        verb = "runs" if self.report["active"] else "stays"
        text = f"{_words(exc)}; {self.report['name']} {verb} on {self.report['host']}"
        refused = isinstance(exc, errors.TargetRefused) and not more
        kind = errors.TargetRefused if refused else errors.MigrationFailed
        return kind(f"{text}; {more}" if more else text)

    def _result(self, there):
        done = live.completed(there) if there and self.report["active"] else {}
        return {
            "name": self.report["name"],
            "outcome": recovery.MOVED,
            "source": self.report["host"],
            "target": self.host["hostname"],
            "live": self.report["active"] and not self.not_live,
            "transport": self.job.transport.words,
            "time_ms": done.get("time_elapsed"),
            "downtime_ms": done.get("downtime"),
            "memory_bytes": done.get("memory_processed"),
            "disk_bytes": sum(plan.moved_bytes for plan in self.copied),
            "disks": {plan.target: plan.how for plan in self.plans},
        }

    def _clean(self):
        """Removes what the guest left here; the move stands, whatever becomes of this."""
        departed.note(self.report["name"], self.host["hostname"])
        deleted, kept = [], {}
        if not self._keeps_source():
            deleted, kept = confirm.remove_source(self.conn, self.report, self._left())
        self._over()
        return {"deleted": deleted, "kept": kept}

    def _over(self):
        """Releases the reservation: the guest is there and counts as what it is. Where the target
        cannot be reached any more, the journal keeps just that for virt.repair."""
        left = [self.reservation]
        self.journal.write(
            over=True, report=self.report, target=self.job.transport.uri, created=left
        )
        try:
            with translated():
                alive = self.peer.isAlive()
            if alive:
                reservations.release(self.peer, left)
                self.journal.close()
            else:
                recovery.recover(self.conn, self.journal, self.job)
        except errors.VirtError as exc:
            self.job.say(f"{self.host['hostname']} keeps {self.reservation}: {exc}; {_AGAIN}")


_NOT_LIVE = "; its CPU is emulated, without KVM: it is paused while its memory is moved"
_AGAIN = "call virt.migrate again, or virt.repair, when the hosts reach each other"


def _words(exc):
    """What went wrong, for the user."""
    if isinstance(exc, libvirt.libvirtError):
        return exc.get_error_message() or str(exc)
    return str(exc) or type(exc).__name__
