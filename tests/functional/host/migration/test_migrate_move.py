"""A migration from beginning to end if a host, the user or libvirt interferes."""

# ruff: noqa: F811
import contextlib
import threading
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import (
    api,
    confirm,
    control,
    departures,
    live,
    migration,
    move_journal,
    peer,
    prepare,
    recovery,
    remote_storage,
    reservations,
    target_files,
)
from saltvirt.migration import journal, options, policy, storage, transport
from saltvirt.migration.checks import request as request_module
from saltvirt.migration.facts import BackingFile, GuestReport, MachineReport, TargetReport
from saltvirt.migration.journal import MOVED, MOVING, PREPARING
from saltvirt.settings import Connection
from tests.functional.conftest import EMPTY
from tests.functional.host.migration.test_migrate_ends import came
from tests.functional.host.migration.test_migrate_faults import broken_off, dom, job, target  # noqa: F401

# -- what an earlier attempt left ---------------------------------------------------------


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))


def test_a_guest_that_an_earlier_attempt_has_moved_is_not_moved_again(kept, job, target, dom):
    broken_off(job, dom, MOVED)
    came(target.conn, dom)
    conn = dom.connect()
    dom.undefine()
    target.up = True
    told = []
    done = api.migrate(conn, replace(job, notify=told.append))
    assert (done.name, done.outcome) == ("web1", "moved")
    assert told[0] == {"text": "completing an earlier migration of this guest"}
    assert move_journal.unfinished(job.journals) == {}


def test_a_guest_is_not_moved_to_a_host_that_holds_what_an_earlier_attempt_left(
    job, target, dom, monkeypatch
):
    """Its old disk there has the name of the new one."""
    broken_off(job, dom, PREPARING)
    monkeypatch.setattr(api, "_connected", lambda _job: contextlib.nullcontext(target.conn))
    told = []
    again = replace(job, transport=transport.parse("hv2"), notify=told.append)
    with pytest.raises(errors.MigrationFailed, match=r"cannot migrate web1: .*No route to host"):
        api.migrate(dom.connect(), again)
    left = "hv2 does not answer: its leftovers of web1 are removed later"
    assert {"text": left} in told
    assert dom.isPersistent()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>",
         errors.MigrationFailed),
        ("", errors.TargetRefused),
    ],
)  # fmt: skip
def test_a_guest_of_which_something_speaks_against_it_stays(
    kept, job, target, dom, monkeypatch, change, kind
):
    """What is against each target is no reason to ask the next one."""
    monkeypatch.setattr(api, "_connected", lambda _job: contextlib.nullcontext(target.conn))
    dom.connect().defineXML(dom.XMLDesc().replace("</devices>", f"{change}</devices>"))
    with pytest.raises(errors.MigrationFailed, match=r"cannot migrate web1 from .*: ") as caught:
        api.migrate(dom.connect(), job)
    assert type(caught.value) is kind
    assert ("the guest has a TPM" in caught.value.text) == bool(change)
    assert dom.isPersistent() and move_journal.unfinished(job.journals) == {}


def test_whether_a_guest_could_move_at_all_asks_no_target(dom, job):
    found = api.migratable(dom.connect(), job, check_target=False)
    assert (found.migratable, found.reasons) == (True, ())
    tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>"
    dom.connect().defineXML(dom.XMLDesc().replace("</devices>", tpm))
    found = api.migratable(dom.connect(), job, check_target=False)
    assert not found.migratable
    assert "the guest has a TPM" in found.reasons[0]


def test_a_target_that_cannot_be_reached_is_the_reason(dom, job):
    asked = replace(job, transport=transport.parse("qemu+tcp://127.0.0.1:9/system"))
    found = api.migratable(dom.connect(), asked, check_target=True)
    assert not found.migratable
    assert "127.0.0.1" in found.reasons[0]


def test_who_asks_over_ssh_is_asked_for_no_password():
    assert peer.batch(transport.parse("qemu+ssh://root@hv2/system")) == (
        "qemu+ssh://root@hv2/system?no_tty=1"
    )
    given = "qemu+ssh://root@hv2/system?keyfile=/k"
    assert peer.batch(transport.Transport(given, "ssh", "hv2")) == given
    assert peer.batch(transport.parse("hv2")) == "qemu+tls://hv2/system"


def test_a_connection_that_cannot_notice_a_dead_host_is_none():
    there = transport.Transport(EMPTY, "tls", "hv2")
    with pytest.raises(errors.ConnectionFailed, match="not support"), peer.connect(there):
        pass


# -- its end, by the user -----------------------------------------------------------------


def test_what_is_not_being_migrated_can_neither_be_ended_nor_hurried(dom, job):
    for ask in (lambda: control.abort(dom.connect(), "web1", job.journals),
                lambda: control.start_postcopy(dom.connect(), "web1")):  # fmt: skip
        with pytest.raises(errors.OperationFailed, match="web1 is not being migrated from"):
            ask()


def test_who_ends_a_migration_that_goes_on_all_the_same_is_told(dom, job, monkeypatch):
    monkeypatch.setattr(control, "_WAIT_S", -1)
    with move_journal.MigrationJournal(job.journals, "web1") as at_work:
        with pytest.raises(
            errors.OperationFailed, match="web1: the request was accepted, but the guest is sti"
        ):
            control.abort(dom.connect(), "web1", job.journals)
        assert at_work.abort_requested()


def test_a_guest_that_was_moved_just_then_is_not_called_ended(dom, job, monkeypatch):
    conn = dom.connect()
    monkeypatch.setattr(control, "_abort_job", lambda *_: dom.undefine())
    with (
        move_journal.MigrationJournal(job.journals, "web1"),
        pytest.raises(errors.OperationFailed, match="web1 was migrated before its migration"),
    ):
        control.abort(conn, "web1", job.journals)


# -- its end, by a fault ------------------------------------------------------------------


@pytest.fixture
def there():
    conn = libvirt.open(EMPTY)
    yield conn
    with contextlib.suppress(libvirt.libvirtError):
        conn.close()


@pytest.fixture
def move(dom, there, job, kept):
    """A move of the stopped guest that has begun; what it told is in ``told``."""
    told = []
    report = GuestReport(
        "web1", dom.UUIDString(), "hv1", False, "shutdown", autostart=True, memory_kib=65536
    )
    asked = replace(job, notify=told.append, local=Connection("test:///default"))
    request = request_module.CheckedMigration(options.parse({}), asked.transport, [])
    host = TargetReport("hv2", machine=MachineReport(has_emulator=True))
    with move_journal.MigrationJournal(asked.journals, "web1") as journal:
        ends = migration.Endpoints(dom.connect(), there, dom)
        found = migration.Migration(ends, report, host, request, asked, journal)
        found._write(phase=MOVING, created=(found.reservation,))
        found.told = told
        yield found


def fault(words="QEMU has died"):
    return errors.OperationFailed(words)


def test_a_move_that_libvirt_has_completed_all_the_same_has_moved(move, dom, there):
    """Its last answer was lost: the guest is there, and not here."""
    copy = came(there, dom)
    dom.undefine()
    done = move._failed(fault())
    assert (done.outcome, done.source, done.target) == ("moved", "hv1", "hv2")
    assert copy.autostart()
    assert move.journal.read() is None


def test_a_move_of_which_nobody_knows_says_both(move, dom):
    dom.undefine()
    with pytest.raises(errors.MigrationFailed, match=r"^QEMU has died; web1: .*neither"):
        move._failed(fault())
    assert move.journal.read(), "a person decides"


def test_a_target_that_cannot_be_cleaned_is_said_with_what_to_do(move, monkeypatch):
    def fails(*_):
        raise errors.OperationFailed("its pool is busy")

    monkeypatch.setattr(recovery, "undo_target", fails)
    with pytest.raises(
        errors.MigrationFailed,
        match=r"^QEMU has died; web1 stays on hv1; not removed: its pool is busy; run ",
    ):
        move._failed(fault())
    assert move.journal.read(), "virt.repair goes on"


def test_a_guest_that_cannot_run_on_is_said_with_why_its_move_failed(move, monkeypatch):
    def fails(*_):
        raise errors.MigrationFailed(
            "web1 is paused on hv1, by its migration or by another program"
        )

    monkeypatch.setattr(recovery, "resume_source", fails)
    with pytest.raises(errors.MigrationFailed, match=r"^QEMU has died; web1 is paused on hv1, by"):
        move._failed(fault())
    assert move.journal.read(), "whoever ends it tries again"


def full(_journal, _entry):
    raise errors.OperationFailed("cannot write web1.json: No space left on device")


def test_a_full_disk_here_undoes_no_move(move, dom, there, monkeypatch):
    """The guest is on the target by then: no failure is said, and nothing is left to be ended."""

    def do(_held):
        came(there, dom)
        dom.undefine()
        monkeypatch.setattr(move_journal.MigrationJournal, "write", full)
        return confirm.find(there, move.report.uuid)

    monkeypatch.setattr(move, "_do", do)
    done = move.run()
    assert (done.outcome, done.target) == ("moved", "hv2")
    said = (
        "web1 was migrated, but that could not be recorded: cannot write web1.json: No space left"
    )
    assert move.told[0]["text"].startswith(said)
    assert move.journal.read() is None


def test_who_ends_the_process_is_not_told_of_a_failure(move, dom):
    with pytest.raises(KeyboardInterrupt):
        move._failed(KeyboardInterrupt())
    assert dom.isPersistent()
    assert move.journal.read() is None


def test_what_libvirt_itself_says_is_taken_over(move):
    try:
        move.conn.lookupByName("nobody")
    except libvirt.libvirtError as exc:
        error = exc
    with pytest.raises(errors.MigrationFailed, match=r"^Domain not found; web1 stays on hv1$"):
        move._failed(error)


@pytest.mark.parametrize("has", ["here", "there", "unknown"])
def test_over_a_lost_connection_both_are_asked_anew(move, dom, there, monkeypatch, has):
    monkeypatch.setattr(recovery, "PATIENCE_S", -1)
    anew = libvirt.open(EMPTY)
    if has == "there":
        came(anew, dom)
        dom.undefine()

    def at(_job, uri):
        assert uri == "qemu+tls://hv3/system"
        if has == "unknown":
            raise errors.ConnectionFailed("no route to hv3")
        return contextlib.nullcontext(anew)

    monkeypatch.setattr(recovery, "connect_target", at)
    there.close()
    if has == "there":
        done = move._failed(fault())
        assert (done.outcome, done.source, done.transport) == ("moved", "hv1", "TLS")
    else:
        words = "no route to hv3; run virt.migrate again" if has == "unknown" else "stays on hv1"
        with pytest.raises(errors.MigrationFailed, match=f"^QEMU has died; .*{words}"):
            move._failed(fault())
        assert dom.isPersistent()
    assert {"text": "querying both hosts again"} in move.told
    assert bool(move.journal.read()) == (has == "unknown")
    anew.close()


class Silent:
    """A connection over which no word comes any more."""

    def isAlive(self):
        return 0


@pytest.mark.parametrize("answers", [True, False])
def test_a_reservation_that_cannot_be_released_is_left_to_repair(move, there, monkeypatch, answers):
    def at(_job, _uri):
        if not answers:
            raise errors.ConnectionFailed("no route to hv3")
        return contextlib.nullcontext(there)

    monkeypatch.setattr(recovery, "connect_target", at)
    move.peer = Silent()
    move._complete()
    left = move.journal.read()
    assert bool(left) == (not answers)
    if not answers:
        assert (left.completed, left.created) == (True, (move.reservation,))
        assert f"hv2 keeps {move.reservation}: no route to hv3" in move.told[-1]["text"]


def test_a_long_move_renews_its_reservation(move, monkeypatch):
    renewed = []

    def renew(conn, path):
        renewed.append(path)
        raise errors.OperationFailed("its pool is busy")

    monkeypatch.setattr(reservations, "renew", renew)
    move._renew_reservation()
    assert renewed == [move.reservation], "later, where it cannot be done just now"
    move._renew_reservation()
    assert len(renewed) == 1


def test_that_the_guest_is_paused_is_written_down_first(move):
    move._pausing(journal.PAUSING)
    assert move.journal.read().pause == journal.PAUSING


# -- what is made on the target -----------------------------------------------------------


class Making:
    """A target that makes what is asked for."""

    def __init__(self):
        self.done = []

    def create_file(self, *wanted, **more):
        self.done.append((wanted, more))

    def copy(self, path, source=None):
        self.done.append((path, source))


def test_what_is_copied_of_a_device_and_of_firmware():
    making = Making()
    plan = storage.DiskPlan(
        "vda", storage.COPY, "/dev/a/b", "raw", "block", 512, target_path="/dev/c/b"
    )
    target_files.copy(making, plan)
    prepare.variables(making, "/v/web1_VARS.fd")
    device = (("/dev/c/b", "raw", 512, None), {"source": "/dev/a/b"})
    assert making.done == [device, ("/v/web1_VARS.fd", None)]


def test_a_file_of_somebody_else_is_not_noted_as_ours(there, monkeypatch):
    """It was not there when it was looked for."""
    pool = there.storagePoolCreateXML(
        "<pool type='dir'><name>p</name><target><path>/srv/p</path></target></pool>"
    )
    notes = []
    made = target_files.MigrationTarget(
        there, lambda one, making=None: notes.append(making), print, None
    )
    real = remote_storage.volume
    monkeypatch.setattr(remote_storage, "volume", lambda *_: None)
    claimed = remote_storage.claim

    def quicker(pool, making, mode):
        pool.createXML("<volume><name>web1</name><capacity>512</capacity></volume>")
        return claimed(pool, making, mode)

    monkeypatch.setattr(remote_storage, "claim", quicker)
    with pytest.raises(errors.AlreadyExists):
        made.create_file("/srv/p/web1", "raw", 512)
    assert notes[0].path == "/srv/p/web1"
    assert (notes[1:], made.created) == ([None], [])
    monkeypatch.setattr(remote_storage, "volume", real)
    with pytest.raises(errors.AlreadyExists, match="/srv/p/web1 has just appeared on the target"):
        made.create_file("/srv/p/web1", "raw", 512)
    assert pool.listVolumes() == ["web1"]


def test_a_device_is_made_with_all_its_room(there, monkeypatch):
    monkeypatch.setattr(remote_storage, "refresh", lambda pool: None)  # the test driver forgets
    pool = there.storagePoolCreateXML(
        "<pool type='logical'><name>vg</name><source><name>vg</name></source>"
        "<target><path>/dev/vg</path></target></pool>"
    )
    notes = []
    made = target_files.MigrationTarget(
        there, lambda one, making=None: notes.append(making), print, None
    )
    made.create_file("/dev//vg/web1", "raw", 2**20)  # as a definition may have it
    assert pool.storageVolLookupByName("web1").info()[1:] == [2**20, 2**20]
    assert (made.created, notes[-1]) == (["/dev/vg/web1"], None)
    assert BackingFile("/x").format == ""


# -- libvirt's part -----------------------------------------------------------------------


def test_what_the_binding_does_not_know_is_named():
    with pytest.raises(errors.Unsupported, match="has no VIR_MIGRATE_BY_PIGEON"):
        live.flags(["LIVE", "BY_PIGEON"])
    with pytest.raises(errors.Unsupported, match="has no parameter PIGEONS"):
        live.parameters({"PIGEONS": 2})
    assert live.flags(["LIVE", "PEER2PEER"]) == 3


def test_a_libvirt_that_tells_nothing_of_a_move_that_is_over_is_no_fault(dom):
    assert live.completed(dom) == {}


class Moving:
    """A running guest whose move goes on until it is ended, or paused: then the target dies."""

    def __init__(self, dom, error, stats):
        self.dom, self.error, self.stats = dom, error, stats
        self.over, self.asked, self.paused = threading.Event(), [], False

    def __getattr__(self, name):
        return getattr(self.dom, name)

    def migrateToURI3(self, *_):
        assert self.over.wait(60)
        raise self.error

    def jobStats(self, *_):
        return self.stats

    def abortJob(self):
        self.asked.append("abort")
        self.over.set()

    def migrateSetMaxDowntime(self, value):
        self.asked.append(value)
        if len(self.asked) > 2:
            self.over.set()

    def migrateStartPostCopy(self):
        self.asked.append("post-copy")
        self.over.set()

    def suspend(self):
        self.asked.append("pause")
        self.dom.suspend()
        self.over.set()


def error(words):
    found = libvirt.libvirtError(words)
    found.err = (38, 0, words, 0, "", None, None, -1, -1)
    return found


MEMORY = {"data_total": 100, "data_remaining": 50, "memory_total": 100, "memory_remaining": 50,
          "memory_iteration": 3}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("safe", ["abort"], "aborted: not done in 0 s"),
        ("postcopy", ["post-copy"], "lost"),
        ("pause", ["pause"], "lost"),
    ],
)
def test_a_guest_whose_move_fails_runs_on(dom, monkeypatch, name, asked, words):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    dom.create()
    steps = []
    how = policy.MigrationPolicy(name, timeout_s=600 if name == "postcopy" else 0, stall_s=600)
    moving = Moving(dom, error("lost"), MEMORY)
    wish = live.Job("qemu+tls://hv2/system", policy=how, max_downtime=7, pausing=steps.append)
    with pytest.raises(errors.MigrationFailed, match=words):
        live.perform(moving, wish, lambda *_: None)
    assert moving.asked == [7, *asked]
    assert steps == ([journal.PAUSING, journal.PAUSED] if name == "pause" else [])
    assert dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING


@pytest.mark.parametrize("exc", [SystemExit(15), ValueError("no event bus")])
def test_libvirt_goes_on_with_no_move_that_nobody_watches(dom, monkeypatch, exc):
    """A copy that libvirt starts just then would be ended on the target."""
    monkeypatch.setattr(live, "POLL_S", 0.01)
    dom.create()
    moving = Moving(dom, error("lost"), MEMORY)

    def tell(*_):
        raise exc

    with pytest.raises(type(exc)):
        live.perform(moving, live.Job("qemu+tls://hv2/system"), tell)
    assert moving.asked == ["abort"]
    assert "migrate web1" not in {one.name for one in threading.enumerate()}


def test_what_the_binding_does_not_know_is_said_before_libvirt_is_asked(dom):
    moving = Moving(dom, error("lost"), MEMORY)
    flags, parameters = frozenset({"PIGEONS"}), {"PIGEONS": 2}
    for asked in (live.Job("x", flags), live.Job("x", parameters=parameters)):
        with pytest.raises(errors.Unsupported, match="PIGEONS"):
            live.perform(moving, asked, lambda *_: None)
    assert moving.asked == []


def test_a_move_whose_figures_are_not_there_is_watched_all_the_same(dom, monkeypatch):
    """libvirt has none before the first data travels."""
    monkeypatch.setattr(live, "POLL_S", 0.01)
    moving, seen = Moving(dom, error("lost"), {}), []

    def none_yet():
        raise error("no job is active")

    def tell(progress, *_):
        seen.append(progress)
        moving.over.set()

    moving.jobStats = none_yet
    with pytest.raises(errors.MigrationFailed, match=r"^refused: lost$"):
        live.perform(moving, live.Job("qemu+tls://hv2/system"), tell)
    assert seen[0].total == 0


@pytest.mark.parametrize(
    ("stats", "code", "kind"),
    [
        ({}, "VIR_ERR_OPERATION_FAILED", errors.TargetRefused),
        ({**MEMORY, "data_processed": 50}, "VIR_ERR_OPERATION_FAILED", errors.MigrationFailed),
        ({}, "VIR_ERR_OPERATION_ABORTED", errors.MigrationFailed),
    ],
)
def test_a_target_that_fails_before_anything_was_sent_has_refused(
    dom, monkeypatch, stats, code, kind
):
    """Another host may take the guest; not when somebody has ended the migration."""
    monkeypatch.setattr(live, "POLL_S", 0.01)
    failed = error("QEMU did not start")
    failed.get_error_code = lambda: getattr(libvirt, code)
    moving = Moving(dom, failed, stats)

    def tell(*_):
        moving.over.set()

    with pytest.raises(errors.MigrationFailed, match="QEMU did not start") as caught:
        live.perform(moving, live.Job("qemu+tls://hv2/system"), tell)
    assert type(caught.value) is kind


def test_of_what_we_did_not_pause_nothing_runs_on(dom):
    live._resume(dom)
    assert not dom.isActive()


def test_qemus_own_ports_are_named():
    told = live._failure(error("unable to connect to server at 'hv2:49152': refused"), None, False)
    assert "TCP ports 49152-49215 must be open" in str(told)
    assert "49215" not in str(live._failure(error("refused"), None, False))


def test_a_step_of_patience_is_taken_and_counted(dom):
    moving = Moving(dom, error("lost"), MEMORY)
    action = policy.Action(policy.DOWNTIME, 500)
    done, ended = live._act(moving, live.Job("x"), action, policy.Progress(), None)
    assert (moving.asked, done.steps, ended) == ([500], 1, None)


def test_a_job_that_has_just_ended_cannot_be_told_anything(dom):
    dom.create()  # it runs, and nothing moves it
    action = policy.Action(policy.ABORT, reason="too slow")
    assert live._act(dom, live.Job("x"), action, policy.Progress(), None) == (
        policy.Progress(),
        None,
    )


# -- autostart ----------------------------------------------------------------------------


def test_a_host_that_loses_its_power_during_the_hand_over_starts_no_old_copy(dom):
    """And a guest that stays starts with its host again, whoever ends the migration."""
    dom.setAutostart(1)
    report = GuestReport("web1", dom.UUIDString(), "hv1", True, "running", autostart=True)
    confirm.disable_autostart(dom, report)
    assert dom.autostart() == 0
    recovery.resume_source(dom.connect(), report, None)
    assert dom.autostart() == 1
    never = replace(report, autostart=False)
    dom.setAutostart(0)
    confirm.disable_autostart(dom, never)
    recovery.resume_source(dom.connect(), never, None)
    assert dom.autostart() == 0


def test_a_running_guest_is_handed_over_with_autostart_off(move, dom, monkeypatch):
    dom.setAutostart(1)
    move.report = replace(move.report, active=True)
    monkeypatch.setattr(reservations, "reserve", lambda *_about: None)
    seen = []

    def live():
        seen.append(dom.autostart())
        raise fault()

    monkeypatch.setattr(move, "_live", live)
    with pytest.raises(errors.MigrationFailed, match="QEMU has died"):
        move.run()
    assert (seen, dom.autostart()) == ([0], 1)
