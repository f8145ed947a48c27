"""Recovery of interrupted migrations: one guest remains on one of the two hosts."""

# ruff: noqa: F811
import contextlib
import re
from types import SimpleNamespace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import departures, move_journal, recovery, reservations
from saltvirt.host.migration import job as job_module
from saltvirt.host.storage import usage
from saltvirt.migration.journal import MOVED, MOVING, PAUSED, PAUSING, PREPARING, JournalEntry
from saltvirt.migration.outcome import Side
from tests.clock import Clock
from tests.functional.host.migration.test_migrate_ends import begun, came, peer, report  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import dom, job  # noqa: F401

RUNS = {"active": True, "state": "running"}
KEEP_TPM = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
PAUSED_USER = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]


class Strict:
    """A domain of the test driver, which keeps no file of variables and knows no flag for it; what
    it was undefined with is in ``flags``."""

    def __init__(self, dom):
        self._dom, self.flags = dom, []

    def __getattr__(self, name):
        return getattr(self._dom, name)

    def undefineFlags(self, flags):
        self.flags.append(flags)
        strange = libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
        return self._dom.undefineFlags(flags & ~(strange | KEEP_TPM))


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """Domains are found as Strict ones."""
    real = recovery.confirm.find

    def find(conn, uuid):
        found = real(conn, uuid)
        return found and Strict(found)

    monkeypatch.setattr(recovery.confirm, "find", find)


@pytest.fixture
def waits(monkeypatch):
    """A paused guest of this host was paused by its migration; one of the target's has not begun
    to run."""
    real = recovery.side

    def side(dom):
        found = real(dom)
        return Side(found.state, is_waiting=True) if found.state == "paused" else found

    monkeypatch.setattr(recovery, "side", side)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ((1, 1), Side("running")), ((1, 10), Side("running", split=True)),
        ((1, 11), Side("running", split=True)), ((1, 12), Side("running")),
        ((1, 2), Side("running")), ((3, 1), Side("paused")),
        ((3, 2), Side("paused", is_waiting=True)), ((3, 11), Side("paused", is_waiting=True)),
        ((3, 12), Side("paused", split=True)), ((3, 13), Side("paused", split=True)),
        ((3, 10), Side("paused")), ((5, 2), Side("shutdown")), ((5, 12), Side("shutdown")),
    ],
)  # fmt: skip
def test_what_libvirt_says_of_a_domain(state, found):
    """virDomainState, and the reason for it, which counts for that state alone."""
    assert recovery.side(SimpleNamespace(state=lambda: state)) == found
    assert recovery.side(None) == Side("gone")


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5])
def test_libvirt_is_at_work_while_it_has_a_job(kind):
    """virDomainJobType: bounded and unbounded ones go on; the others are over."""
    job = SimpleNamespace(jobInfo=lambda: [kind, 9, 9])
    assert recovery.has_job(job) is (kind in (1, 2))


# -- one guest on one host ----------------------------------------------------------------


def test_a_guest_that_came_through_is_forgotten_here(peer, dom):
    there = came(peer, dom, start=True)
    conn = dom.connect()
    assert recovery.resolve(conn, peer, report(dom, **RUNS)) == "moved"
    assert there.isActive()
    with pytest.raises(libvirt.libvirtError, match="not found"):
        conn.lookupByName("web1")


def test_a_copy_beside_a_guest_that_runs_is_ended(peer, dom, waits):
    """It was not begun yet, and is paused there."""
    dom.create()
    came(peer, dom, start=True).suspend()
    assert recovery.resolve(dom.connect(), peer, report(dom, **RUNS)) == "undone"
    assert peer.listAllDomains() == []
    assert dom.isActive()


@pytest.mark.parametrize(("state", "after"), [("running", "running"), ("paused", "paused")])
def test_a_guest_that_waits_here_runs_on_as_it_did(peer, dom, waits, state, after):
    dom.create()
    dom.suspend()
    about = report(dom, active=True, state=state)
    assert recovery.resolve(dom.connect(), peer, about) == "undone"
    assert recovery.lookup.state(dom) == after


@pytest.mark.parametrize("persistent", [True, False])
def test_what_waits_here_for_a_guest_that_runs_there_is_ended(peer, dom, waits, persistent):
    there, conn = came(peer, dom, start=True), dom.connect()
    dom.create()
    dom.suspend()
    if not persistent:
        dom.undefine()
    assert recovery.resolve(conn, peer, report(there, **RUNS)) == "moved"
    assert "web1" not in {one.name() for one in conn.listAllDomains()}
    assert there.isActive()


def test_the_only_definition_of_a_guest_stays_though_it_came_through(peer, dom):
    """It was moved with persistent=False: the target forgets it when it ends there."""
    there, conn = came(peer, dom, start=True), dom.connect()
    there.undefine()
    assert recovery.resolve(conn, peer, report(dom, **RUNS)) == "moved"
    assert there.isActive()
    assert dom.isPersistent()


@pytest.mark.parametrize(("active", "outcome"), [(False, "moved"), (True, None)])
def test_a_guest_that_is_off_there_and_not_here(peer, dom, active, outcome):
    there, conn = came(peer, dom), dom.connect()
    dom.undefine()
    about = report(there, active=active, state="running" if active else "shutdown")
    if outcome:
        assert recovery.resolve(conn, peer, about) == outcome
    else:
        with pytest.raises(errors.MigrationFailed, match=r"^web1: it is gone here and shutdown on"):
            recovery.resolve(conn, peer, about)
    assert there.isPersistent()


def test_of_two_that_run_the_younger_is_paused(peer, dom):
    dom.create()
    there = came(peer, dom, start=True)
    with pytest.raises(errors.MigrationFailed, match=r"^web1: split brain"):
        recovery.resolve(dom.connect(), peer, report(dom, **RUNS))
    assert (recovery.lookup.state(dom), there.state()) == ("running", PAUSED_USER)


class Dead:
    """A connection that was lost: what is asked of it is not answered any more."""

    def isAlive(self):
        return 0


def test_over_a_lost_connection_nothing_is_decided(peer, dom):
    for ends in ((dom.connect(), Dead()), (Dead(), peer)):
        with pytest.raises(
            errors.ConnectionFailed, match="connection to one of the hosts was lost"
        ):
            recovery.resolve(*ends, report(dom))


# -- the definitions ----------------------------------------------------------------------


def test_what_libvirt_keeps_of_a_guest_goes_with_its_definition(dom):
    one, conn = Strict(dom), dom.connect()
    dom.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>")
    recovery.undefine(one)
    assert "web1" not in {found.name() for found in conn.listAllDomains()}
    wanted = ("MANAGED_SAVE", "SNAPSHOTS_METADATA", "NVRAM")
    [flags] = one.flags
    assert flags == sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in wanted)


def test_a_guest_that_is_started_just_then_is_defined_again_with_its_password(dom):
    conn = dom.connect()
    text = dom.XMLDesc().replace("</devices>", "<graphics type='vnc' passwd='s3cret'/></devices>")
    dom = conn.defineXML(text)

    class Started(Strict):
        def undefineFlags(self, flags):
            self._dom.create()
            return super().undefineFlags(flags)

    with pytest.raises(errors.MigrationFailed, match=r"web1 was started on .* in the meantime"):
        recovery.undefine(Started(dom))
    assert dom.isPersistent()
    kept = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert "passwd='s3cret'" in kept
    assert "<domain type='test'>" in kept, "not as it ran"


@pytest.mark.parametrize("shared", [True, False])
def test_the_state_of_a_tpm_that_the_hosts_share_stays_with_the_guest(dom, monkeypatch, shared):
    """libvirt would take it from under the guest that runs on the other host."""
    monkeypatch.setattr(usage, "others_may_have", lambda conn, path: "nfs4" if shared else None)
    tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>"
    text = dom.XMLDesc().replace("</devices>", tpm)
    left = Strict(dom.connect().defineXML(text))
    recovery.undefine(left)
    assert bool(left.flags[0] & KEEP_TPM) is shared
    dom, asked = dom.connect().defineXML(text), []
    monkeypatch.setattr(recovery, "_end", lambda there, tpm: asked.append(tpm))
    recovery.ACTIONS[recovery.outcome.END_TARGET](dom, None)
    assert asked == ["KEEP_TPM" if shared else "TPM"]


def test_of_a_libvirt_that_knows_no_state_of_a_tpm_less_is_asked(dom):
    class Older(Strict):
        def undefineFlags(self, flags):
            if flags & KEEP_TPM:
                self.flags.append(flags)
                exc = libvirt.libvirtError("unsupported flags")
                exc.err = (libvirt.VIR_ERR_INVALID_ARG, 0, "", 0, "", "", "", 0, 0)
                raise exc
            return super().undefineFlags(flags)

    one = Older(dom)
    recovery._end(one, "KEEP_TPM")
    assert [bool(flags & KEEP_TPM) for flags in one.flags] == [True, False]
    assert recovery.confirm.find(dom.connect(), dom.UUIDString()) is None


def undefining(*names):
    return sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{name}") for name in names)


def test_what_a_definition_is_taken_away_with(dom, monkeypatch):
    plain = undefining("KEEP_NVRAM", "SNAPSHOTS_METADATA")
    assert recovery._undefine_flags(dom, None, "KEEP_NVRAM") == [plain, plain]
    assert recovery._undefine_flags(dom, "TPM", "KEEP_NVRAM") == [plain, plain]
    assert recovery._undefine_flags(dom, "KEEP_TPM", "KEEP_NVRAM") == [plain | KEEP_TPM, plain]
    monkeypatch.delattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM")  # an older binding
    assert recovery._undefine_flags(dom, "KEEP_TPM", "KEEP_NVRAM") == [plain, plain]
    monkeypatch.setattr(recovery.checkpoints, "texts", lambda dom: ["<domaincheckpoint/>"])
    known = plain | undefining("CHECKPOINTS_METADATA")
    assert recovery._undefine_flags(dom, None, "KEEP_NVRAM") == [known, known]


def test_what_runs_by_now_is_neither_undefined_nor_ended(dom):
    dom.create()
    one = Strict(dom)
    with pytest.raises(errors.MigrationFailed, match=r"^web1 was started on .* in the meantime$"):
        recovery.undefine(one)
    with pytest.raises(errors.OperationFailed, match="web1 was started just now"):
        recovery._end(one, None)
    assert (one.flags, dom.isActive(), dom.isPersistent()) == ([], True, True)


def test_an_ended_copy_keeps_the_file_of_its_variables(dom):
    """Both hosts may have it: the source says whose it is."""
    one = Strict(dom)
    recovery._end(one, None)
    assert one.flags[0] & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
    assert one.flags[0] & libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA


def test_a_copy_that_is_no_more_once_it_is_ended(peer, dom, waits):
    there = came(peer, dom, start=True)
    there.undefine()
    there.suspend()
    recovery._end(Strict(there), None)
    assert peer.listAllDomains() == []


# -- how a guest runs on ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "state", "end"),
    [
        (PAUSED, "running", "running"), (PAUSING, "running", "said"),
        (None, "running", "paused"), (PAUSED, "paused", "paused"), (PAUSING, "paused", "paused"),
    ],
)  # fmt: skip
def test_a_guest_runs_on_where_its_migration_paused_it(dom, step, state, end):
    dom.create()
    dom.suspend()
    about = report(dom, active=True, state=state)
    words = re.escape(
        "web1 is paused on hv1, by its migration or by another program: run virt.resume"
    )
    said = pytest.raises(errors.MigrationFailed, match=words)
    with said if end == "said" else contextlib.nullcontext():
        recovery.resume_source(dom.connect(), about, step)
    assert recovery.lookup.state(dom) == ("running" if end == "running" else "paused")


@pytest.mark.parametrize("step", [PAUSED, PAUSING])
def test_a_guest_that_is_not_paused_or_not_here_is_left_alone(dom, step):
    dom.create()
    about, conn = report(dom, **RUNS), dom.connect()
    recovery.resume_source(conn, about, step)
    assert recovery.lookup.state(dom) == "running"
    dom.destroy()
    recovery.resume_source(conn, about, step)
    assert not dom.isActive()
    dom.undefine()
    recovery.resume_source(conn, about, step)


# -- what the journal tells of ------------------------------------------------------------


@pytest.fixture
def done(monkeypatch):
    """What is asked for: to release reservations, to clean up on the target and here."""
    found = []

    def note(*what, says=None):
        found.append(what)
        return says

    monkeypatch.setattr(
        recovery, "undo_target",
        lambda peer, made: note("cleaned", made.created, says=(["/there"], {"/busy": "open"})),
    )  # fmt: skip
    monkeypatch.setattr(
        reservations, "release", lambda peer, created: note("released", tuple(created))
    )
    monkeypatch.setattr(
        recovery.confirm, "remove_source",
        lambda conn, report, left: note("removed", tuple(left), says=(["/here"], {"/k": "used"})),
    )  # fmt: skip
    return found


def ended(dom, job, about=None, **more):
    conn = dom.connect()
    journal = begun(job, about or report(dom), created=("/there",), source_files=("/here",), **more)
    found = recovery.recover(conn, journal, job)
    assert journal.read() is None, "it is closed"
    return found


def test_of_a_guest_that_stays_the_target_is_cleaned(peer, dom, job, done):
    found = ended(dom, job)
    assert done == [("cleaned", ("/there",))]
    assert (found.name, found.outcome) == ("web1", "undone")
    assert (found.deleted, found.retained) == (("/there",), {"/busy": "open"})
    assert (found.source, found.target, found.live) == ("hv1", peer.getHostname(), False)
    assert departures.departure_reason("web1") is None


def test_of_a_guest_that_stays_what_was_paused_runs_on(peer, dom, job, done):
    dom.create()
    dom.suspend()
    assert ended(dom, job, report(dom, **RUNS), pause=PAUSED).live
    assert recovery.lookup.state(dom) == "running"


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("phase", [MOVED, MOVING])
def test_of_a_guest_that_moved_the_source_is_cleaned(peer, dom, job, done, keep, phase):
    there = came(peer, dom, start=True)
    dom.setAutostart(1)
    found = ended(dom, job, report(dom, **RUNS), phase=phase, keep_source=keep)
    removed = [] if keep else [("removed", ("/here",))]
    assert done == [("released", ("/there",)), *removed]
    assert (found.outcome, found.live) == ("moved", True)
    assert (found.deleted, found.retained) == (((), {}) if keep else (("/here",), {"/k": "used"}))
    assert there.autostart() == (phase == MOVING), "of a confirmed move it was set before"
    assert peer.getHostname() in departures.departure_reason("web1")


@pytest.mark.parametrize("phase", [PREPARING, MOVING])
def test_of_a_guest_that_neither_host_has_a_person_reads_what_to_do(peer, dom, job, done, phase):
    about, conn = report(dom), dom.connect()
    dom.undefine()
    journal = begun(job, about, created=("/there",), source_files=("/here",), phase=phase)
    words = (
        r"web1 is on neither host, .*: its definition is in .*/web1\.json: define it again from "
        r"that file; if it was removed intentionally, salt-run virt.migrate_recover web1"
    )
    with pytest.raises(errors.MigrationFailed, match=words):
        recovery.recover(conn, journal, job)
    assert (done, journal.read().phase) == ([], phase)
    found = recovery.recover(conn, journal, job, removed=True)
    kept = {"/here": "web1 created this file before it was removed"}
    assert (found.outcome, found.retained) == ("removed", kept)
    assert done == [("cleaned" if phase == PREPARING else "released", ("/there",))]
    assert journal.read() is None


def test_a_guest_that_is_there_is_not_removed_by_word(peer, dom, job, done):
    conn, about = dom.connect(), report(dom)
    journal = begun(job, about, created=("/there",), phase=PREPARING)
    assert recovery.recover(conn, journal, job, removed=True).outcome == "undone"
    assert dom.isPersistent()


def test_what_stayed_here_of_a_guest_that_the_target_lost_is_kept(peer, dom, job, done):
    about = report(dom)
    found = ended(dom, job, about, phase=MOVED)
    why = f"web1 is no longer on {peer.getHostname()}: find it first"
    assert (found.outcome, found.retained) == ("moved", {"/here": why})
    assert done == [("released", ("/there",))]


def test_a_move_that_was_over_leaves_its_reservation_alone_to_release(peer, dom, job, done):
    found = ended(dom, job, completed=True)
    assert (found.name, found.outcome, found.deleted) == ("web1", "nothing", ())
    assert done == [("released", ("/there",))]


@pytest.mark.parametrize("there", [True, False])
def test_what_was_made_for_a_guest_that_is_no_more(peer, dom, job, done, there):
    """Another one has its name here by now."""
    about, conn = report(dom), dom.connect()
    if there:
        came(peer, dom)
    text = re.sub("<uuid>.*</uuid>", "", dom.XMLDesc())
    dom.undefine()
    another = conn.defineXML(text)
    found = ended(another, job, about)
    assert (found.name, found.outcome) == ("web1", "moved" if there else "undone")
    why = "another guest now has the name web1 on this host: check to which guest this file belongs"
    gone, kept = ((), {"/here": why}) if there else (("/there",), {"/busy": "open"})
    assert (found.deleted, found.retained) == (gone, kept)
    assert done == [("released" if there else "cleaned", ("/there",))]
    assert another.isPersistent()


def test_nothing_is_done_while_libvirt_moves_it(peer, dom, job, done, monkeypatch):
    monkeypatch.setattr(recovery, "has_job", lambda _dom: True)
    dom.create()
    words = "libvirt is still migrating web1 to qemu.*"
    with pytest.raises(errors.OperationFailed, match=words):
        ended(dom, job, report(dom, **RUNS))
    assert done == []
    dom.destroy()
    assert ended(dom, job).outcome == "undone", "of a guest that is off libvirt has no job"


@pytest.mark.parametrize("phase", [PREPARING, MOVING])
def test_a_guest_that_one_host_alone_has_was_run_by_nobody_else(peer, dom, phase):
    entry = JournalEntry(report(dom), "qemu+tls://hv2/system", phase, created=("/there",))
    recovery.refuse_foreign(dom.connect(), peer, entry)
    came(peer, dom)
    conn = dom.connect()
    dom.undefine()
    recovery.refuse_foreign(conn, peer, entry)


def test_the_files_that_were_written_to_there_are_named(peer, dom, monkeypatch):
    came(peer, dom)
    entry = JournalEntry(report(dom), "qemu+tls://hv2/system", MOVING)
    recovery.refuse_foreign(dom.connect(), peer, entry)
    monkeypatch.setattr(recovery.target_leftovers, "written_since", lambda peer, made: ["/a", "/b"])
    words = "^/a, /b on .*, which was written to since .*: keep one, and run virt.stop"
    with pytest.raises(errors.MigrationFailed, match=words):
        recovery.refuse_foreign(dom.connect(), peer, entry)


def test_the_target_is_the_one_of_the_journal(job, monkeypatch):
    """Whichever the guest is to go to by now."""
    monkeypatch.setattr(
        job_module.peer, "connect", lambda transport, *_who: contextlib.nullcontext(transport.uri)
    )
    with recovery.connect_target(job, "qemu+tls://hv2/system") as found:
        assert found == "qemu+tls://hv2/system" != job.transport.uri


def test_a_guest_that_was_never_on_its_way_may_start(dom, job):
    assert move_journal.require_startable(dom, job.journals) is None


# -- once more ----------------------------------------------------------------------------


@pytest.fixture
def tries(monkeypatch):
    """What each try to recover says, the last one over and over; how often it was tried."""

    class Tries:
        says, count, over = [], 0, set()

        @contextlib.contextmanager
        def connect(self, settings):
            self.over.add(settings)
            yield "new"

        def recover(self, *_asked):
            self.count += 1
            found = self.says[min(self.count, len(self.says)) - 1]
            if isinstance(found, Exception):
                raise found
            return found

    found = Tries()
    monkeypatch.setattr(recovery, "time", Clock())
    monkeypatch.setattr(recovery.connection, "connect", found.connect)
    monkeypatch.setattr(recovery, "recover", found.recover)
    return found


LOST = errors.ConnectionFailed("no route to hv2")


def test_it_is_tried_until_both_answer(tries, job):
    tries.says = [LOST, errors.OperationFailed("still moving"), "done"]
    assert recovery.retry(None, job) == "done"
    assert recovery.time.slept == [2, 2]
    assert tries.over == {job.local}


def test_what_is_for_a_person_is_not_tried_again(tries, job):
    tries.says = [errors.MigrationFailed("split brain")]
    with pytest.raises(errors.MigrationFailed, match="split brain"):
        recovery.retry(None, job)
    assert (tries.count, recovery.time.slept) == (1, [])


def test_after_a_minute_it_is_given_up(tries, job):
    tries.says = [LOST]
    with pytest.raises(errors.ConnectionFailed, match="no route"):
        recovery.retry(None, job)
    assert recovery.time.slept == [2] * (recovery.PATIENCE_S // 2 + 1)
