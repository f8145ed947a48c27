"""A guest of this host moves to another one.

All of it is done from the guest's host, through the two libvirts: what the other host has
is asked, and made, over the same encrypted connection on which the guest then travels.
"""

import contextlib
from dataclasses import dataclass, field

from saltvirt import errors
from saltvirt.host import (
    domain,
    migrate_cold,
    migrate_facts,
    migrate_finish,
    migrate_journal,
    migrate_perform,
    migrate_prepare,
    migrate_recover,
    migrate_remote,
)
from saltvirt.migration import checks, flags, policy, storage
from saltvirt.revert import Revert


@dataclass(frozen=True)
class Order:
    """What to do. network: dict of ``virt:migration``. tell: called with a dict at each step:
    ``text``, and while data travels ``percent``, ``remaining_bytes``, ``speed``, ``elapsed_s``.
    """

    name: str
    transport: object
    options: object
    network: dict = field(default_factory=dict)
    username: str | None = None
    password: str | None = None
    journals: str = migrate_journal.FOLDER
    tell: object = lambda event: None

    def peer(self):
        return migrate_remote.connect(self.transport, self.username, self.password)

    def say(self, text):
        self.tell({"text": text})


def migrate(conn, order):
    """Moves the guest; a dict of what happened, see ``virt.migrate``.

    What an earlier attempt left half done is ended first. Raises NotFound,
    ConnectionFailed, MigrationFailed: the guest is then where it was, and the target clean
    unless the message says what is left.
    """
    with migrate_journal.Journal(order.journals, order.name) as journal:
        ended = _end_earlier(conn, order, journal)
        if ended:
            return ended
        dom = domain.lookup(conn, order.name)
        with _reached(order) as peer:
            report, host, request = examine(dom, peer, order)
            why = checks.standing(report, request) + checks.against(report, host, request)
            if why:
                raise errors.MigrationFailed(
                    f"{order.name} stays on {report['host']}: " + "; ".join(why)
                )
            return _Move(conn, peer, dom, report, host, request, order, journal).run()


def _end_earlier(conn, order, journal):
    """Ends what a killed migration of this guest began: its result if that has moved it."""
    if journal.read() is None:
        return None
    order.say("ending an earlier migration of this guest")
    outcome = migrate_recover.recover(conn, journal, order)
    return outcome if outcome["outcome"] == migrate_recover.MOVED else None


@contextlib.contextmanager
def _reached(order):
    """The connection to the target for the block; without it the guest stays, and says so."""
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(order.peer())
        except errors.ConnectionFailed as exc:
            raise errors.MigrationFailed(f"{order.name} stays where it is: {exc}") from exc
        yield peer


def examine(dom, peer, order):
    """(the guest's report, the target's, the Request); changes nothing."""
    report = migrate_facts.guest(dom)
    with migrate_facts.marked(report) as marks:
        host = migrate_facts.target(peer, report, marks)
    plans = storage.plan(report["disks"], host["paths"], order.options.copy_storage)
    return report, host, checks.Request(order.options, order.transport, plans)


def migratable(conn, order, against):
    """The standing answer: ``migratable``, ``reasons``, and with ``against`` ``disks``.

    against: also ask the target of the order.
    """
    dom = domain.lookup(conn, order.name)
    if not against:
        request = checks.Request(order.options, order.transport)
        why = checks.standing(migrate_facts.guest(dom), request)
        return {"migratable": not why, "reasons": why}
    try:
        with order.peer() as peer:
            report, host, request = examine(dom, peer, order)
    except errors.ConnectionFailed as exc:
        return {"migratable": False, "reasons": [str(exc)]}
    why = checks.standing(report, request) + checks.against(report, host, request)
    disks = {plan.target: plan.how for plan in request.plans}
    return {"migratable": not why, "reasons": why, "disks": disks}


def recover(conn, order):
    """Ends a killed migration: see migrate_recover.recover; outcome "nothing" without one."""
    with migrate_journal.Journal(order.journals, order.name) as journal:
        if journal.read() is None:
            return {"name": order.name, "outcome": "nothing", "deleted": []}
        return migrate_recover.recover(conn, journal, order)


class _Move:
    """One migration, from a clean start to a verified end."""

    def __init__(self, conn, peer, dom, report, host, request, order, journal):
        self.conn, self.peer, self.dom = conn, peer, dom
        self.report, self.host, self.request = report, host, request
        self.order, self.journal = order, journal
        self.plans = request.plans
        self.copied = storage.copied(self.plans)

    def run(self):
        report = self.report
        self._note()
        undo = Revert()
        try:
            migrate_prepare.disks(self.peer, self.plans, report["active"], undo, self.order.say)
            if report["active"]:
                self._live()
            else:
                migrate_cold.move(self.peer, self.dom, self, undo)
            there = migrate_finish.confirm(
                self.conn, self.peer, report, self.order.options.persistent
            )
        except BaseException as exc:
            raise self._failed(undo, exc) from exc
        undo.success()
        result = self._result(there)
        result.update(self._clean())
        return result

    def _note(self):
        self.journal.write(
            report=self.report,
            target=self.order.transport.uri,
            created=migrate_prepare.created(self.plans),
            copied=[plan.path for plan in self.copied],
            keep_source=self._keeps_source(),
            xml=migrate_cold.definition(self.dom),
        )

    def _keeps_source(self):
        options = self.order.options
        return options.keep_source or not options.undefinesource

    def _live(self):
        options, order = self.order.options, self.order
        size = self.report["memory_kib"] * 1024 + sum(plan.moved_bytes for plan in self.copied)
        network = {**order.network, **({"timeout": options.timeout} if options.timeout else {})}
        job = migrate_perform.Job(
            uri=migrate_remote.batch(order.transport),
            flags=frozenset(
                flags.flags(options, order.transport, storage.mode(self.plans), live=True)
            ),
            parameters=flags.parameters(
                options, [plan.target for plan in self.copied], order.network
            ),
            policy=policy.limits(size, network, options.policy),
            max_downtime=options.max_downtime,
        )
        order.say(
            f"moving {self.report['name']} from {self.report['host']} to "
            f"{self.host['hostname']} over {order.transport.words}"
        )
        migrate_perform.perform(self.dom, job, self._watch)

    def _watch(self, progress, elapsed_s, reason):
        self.order.tell(
            {
                "text": reason,
                "percent": progress.percent,
                "remaining_bytes": progress.remaining,
                "speed": progress.speed,
                "dirty_rate": progress.dirty_rate,
                "elapsed_s": round(elapsed_s, 1),
            }
        )

    def _failed(self, undo, exc):
        """The error for the user, after the target was cleaned."""
        try:
            state = migrate_recover.settle(self.conn, self.peer, self.report)
        except errors.VirtError as unsure:
            undo.success()  # nothing is removed while it is not known who needs it
            return errors.MigrationFailed(f"{exc}; {unsure}")
        if state == migrate_recover.MOVED:
            undo.success()
            return errors.MigrationFailed(
                f"{exc}; but {self.report['name']} is on {self.host['hostname']}: "
                "call virt.migrate again to clean up here"
            )
        undo.run()
        left = "; ".join(undo.failed)
        if left:
            return errors.MigrationFailed(
                f"{exc}; {self._stays()}; not cleaned: {left}; "
                "call virt.migrate again when the hosts reach each other"
            )
        self.journal.close()
        if not isinstance(exc, Exception):
            return exc
        return errors.MigrationFailed(f"{exc}; {self._stays()}")

    def _stays(self):
        verb = "runs" if self.report["active"] else "stays"
        return f"{self.report['name']} {verb} on {self.report['host']}"

    def _result(self, there):
        done = migrate_perform.completed(there) if self.report["active"] else {}
        return {
            "name": self.report["name"],
            "outcome": migrate_recover.MOVED,
            "source": self.report["host"],
            "target": self.host["hostname"],
            "live": self.report["active"],
            "transport": self.order.transport.words,
            "time_ms": done.get("time_elapsed"),
            "downtime_ms": done.get("downtime"),
            "memory_bytes": done.get("memory_processed"),
            "disk_bytes": sum(plan.moved_bytes for plan in self.copied),
            "disks": {plan.target: plan.how for plan in self.plans},
        }

    def _clean(self):
        """Removes what the guest left here; the move stands, whatever becomes of this."""
        deleted, kept = [], {}
        if not self.report["active"] and self.order.options.undefinesource:
            migrate_recover.undefine(self.dom)
        if not self._keeps_source():
            paths = [plan.path for plan in self.copied]
            deleted, kept = migrate_finish.remove_source(self.conn, self.report, paths)
        self.journal.close()
        return {"deleted": deleted, "kept": kept}
