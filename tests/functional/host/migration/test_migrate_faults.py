"""Concurrent changes of the guest at the end of a migration, and targets that died."""

import contextlib
import json
import os
import pathlib
import sys
import time
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import (
    api,
    confirm,
    facts,
    move_journal,
    recovery,
    remote_storage,
    reservations,
    target_leftovers,
    unreachable_target,
)
from saltvirt.host.migration import job as job_module
from saltvirt.host.storage import sharing
from saltvirt.migration import options, reservation, transport
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import MOVED, MOVING, PAUSED, PAUSING, PREPARING, JournalEntry
from saltvirt.migration.outcome import Side
from saltvirt.system import message_file, paths
from tests.functional.conftest import EMPTY
from tests.functional.daemon import libvirtd  # noqa: F401

XML = (
    "<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os></domain>"
)


@pytest.fixture
def dom(conn):
    yield conn.defineXML(XML)
    for left in conn.listAllDomains():
        if left.name() == "web1":
            if left.isActive():
                left.destroy()
            left.undefine()


class Proxy:
    """A virDomain, something happens just before it is undefined."""

    def __init__(self, dom, act):
        self._dom, self._act = dom, act

    def __getattr__(self, name):
        return getattr(self._dom, name)

    def undefineFlags(self, flags):
        self._act()
        return self._dom.undefineFlags(flags & ~libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


def test_a_guest_that_was_started_is_not_forgotten(dom):
    dom.create()
    with pytest.raises(errors.MigrationFailed, match="web1 was started on"):
        recovery.undefine(dom)
    assert dom.isPersistent()


def test_nor_one_that_is_started_in_that_very_moment(dom):
    with pytest.raises(errors.MigrationFailed, match="web1 was started on"):
        recovery.undefine(Proxy(dom, dom.create))
    there = dom.connect().lookupByName("web1")
    assert (there.isActive(), there.isPersistent()) == (1, 1), "it runs, and is defined again"


def test_no_disk_of_a_guest_that_is_here_again_is_deleted(dom, tmp_path):
    disk = tmp_path / "web1_vda.qcow2"
    disk.touch()
    report = GuestReport("web1", dom.UUIDString(), "hv1", False, "shutdown")
    deleted, kept = confirm.remove_source(dom.connect(), report, [str(disk)])
    assert (deleted, kept) == ([], {str(disk): "web1 is defined on this host"})
    assert disk.exists()


def test_a_copy_that_has_just_begun_to_run_is_not_ended(dom):
    """Between the decision and the deed somebody started it."""
    dom.create()
    with pytest.raises(errors.OperationFailed, match="was started just now"):
        recovery._end(dom, None)
    assert dom.isActive()


DISK = "/vm/web1_vda.qcow2"
PROMISE = f"{reservations.FOLDER}/web1~65536~1~1000"


@pytest.fixture
def job(tmp_path):
    return job_module.MigrationJob(
        "web1", transport.parse("hv3"), options.parse({}),
        journals=str(tmp_path / "journals"), locks=str(tmp_path / "locks"),
    )  # fmt: skip


@pytest.fixture
def target(monkeypatch):
    """The other host, which is dead until its ``up`` is set; its libvirt."""

    class Target:
        up, conn = False, libvirt.open(EMPTY)

        @contextlib.contextmanager
        def at(self, _job, uri):
            assert uri == "qemu+tls://hv2/system"
            if not self.up:
                raise errors.ConnectionFailed("cannot connect to hv2: No route to host")
            yield self.conn

        def volume(self, path, make=False):
            """Whether it has that file."""
            with remote_storage.open_pool(self.conn, path.rpartition("/")[0]) as pool:
                if make:
                    remote_storage.create(pool, path, "raw", 0)
                return remote_storage.volume(pool, path) is not None

    found = Target()
    monkeypatch.setattr(recovery, "connect_target", found.at)
    monkeypatch.setattr(recovery, "has_job", lambda _dom: False)  # the test driver has none
    # the test driver forgets what was in a passing pool
    for folder in ("/vm", reservations.FOLDER):
        name = folder.strip("/").replace("/", "-")
        found.conn.storagePoolCreateXML(
            f"<pool type='dir'><name>{name}</name><target><path>{folder}</path></target></pool>"
        )
    yield found
    found.conn.close()


@pytest.fixture
def real(target, libvirtd, tmp_path, monkeypatch):  # noqa: F811
    """The other host has a real libvirtd."""
    (tmp_path / "vm").mkdir()
    (tmp_path / "reservations").mkdir()
    target.conn.close()
    target.conn = libvirt.open(libvirtd.uri)
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "target_leftovers"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "DISK", str(tmp_path / "vm" / "web1_vda.qcow2"))
    monkeypatch.setattr(here, "PROMISE", str(tmp_path / "reservations" / "web1~65536~1~1000"))


def broken_off(job, dom, phase=None, **more):
    """What a process that was killed then leaves."""
    state = "running" if dom.isActive() else "shutdown"
    report = GuestReport("web1", dom.UUIDString(), "hv1", bool(dom.isActive()), state)
    created = (PROMISE, DISK)
    with move_journal.MigrationJournal(job.journals, "web1") as journal:
        journal.write(JournalEntry(report, "qemu+tls://hv2/system", phase, created, **more))


def unfinished(job):
    return sorted({
        **move_journal.unfinished(job.journals), **unreachable_target.unfinished(job.journals)
    })  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "more", "outcome"),
    [
        (PREPARING, {}, "undone"),
        (MOVING, {"completed": True}, "nothing"),
    ],
)
def test_a_dead_target_that_cannot_have_the_guest_pins_it_not(
    job, target, dom, real, phase, more, outcome
):
    broken_off(job, dom, phase, **more)
    done = api.recover(dom.connect(), job)
    assert done.outcome == outcome
    assert "No route to host" in done.leftovers["hv2"]
    assert unfinished(job) == ["web1@hv2"], "no migration is held up by it"
    target.up = True
    for path in (PROMISE, DISK):
        target.volume(path, make=True)
    done = api.recover(dom.connect(), job)
    assert (done.outcome, done.leftovers) == ("nothing", {})
    assert done.deleted == (PROMISE,)
    assert "salt-run virt.migrate_recover web1" in done.retained[DISK]
    assert target.volume(DISK), "who uses it there only that host can tell"
    assert unfinished(job) == []
    assert target_leftovers.names() == ["web1"]
    assert target_leftovers.clean(target.conn, "web1") == ([DISK], {})
    assert not target.volume(DISK)


def test_a_dead_target_that_may_run_it_is_for_a_person(job, target, dom):
    given_up = []
    job = replace(job, on_target_lost=given_up.append)
    dom.create()
    broken_off(job, dom, MOVING)
    with pytest.raises(errors.ConnectionFailed, match=r"virt\.migrate_recover web1 lost=hv2"):
        api.recover(dom.connect(), job)
    with pytest.raises(errors.InvalidInput, match="was being migrated to hv2, not to hv9"):
        api.recover(dom.connect(), job, lost="hv9")
    assert (unfinished(job), given_up) == (["web1"], [])
    done = api.recover(dom.connect(), job, lost="hv2")
    assert given_up == ["hv2"]
    assert (done.outcome, list(done.leftovers)) == ("undone", ["hv2"])
    assert dom.isActive()
    with pytest.raises(errors.InvalidInput, match="no migration of web1 from here is unfinished"):
        api.recover(dom.connect(), job, lost="hv2")
    assert given_up == ["hv2"]


def test_journals_of_an_older_version_are_for_a_person_too(job, target, dom):
    broken_off(job, dom)
    with pytest.raises(errors.ConnectionFailed, match="may run web1"):
        api.recover(dom.connect(), job)


def test_nobody_can_vouch_for_a_guest_that_is_not_here(job, target, dom):
    broken_off(job, dom, MOVING)
    conn = dom.connect()
    dom.undefine()
    with pytest.raises(errors.MigrationFailed, match=r"on neither host.*web1\.json"):
        api.recover(conn, job, lost="hv2")
    assert unfinished(job) == ["web1"]


@pytest.mark.parametrize("back", ["as a guest", "on its way"])
def test_what_was_left_stays_when_the_guest_is_there_again(job, target, dom, back):
    """Its disk there has the name of the one that was left: it is the living one now."""
    broken_off(job, dom, PREPARING)
    api.recover(dom.connect(), job)
    target.up = True
    target.volume(DISK, make=True)
    if back == "as a guest":
        target.conn.defineXML(XML)
    else:
        now = reservations.reservation_path(
            GuestReport("web1", "u", "hv1", False, "shutdown", memory_kib=65536), []
        )
        target.volume(now, make=True)
    why = api.recover(dom.connect(), job).leftovers["hv2"]
    assert ("has a guest web1" if back == "as a guest" else "being migrated to hv2 again") in why
    assert target.volume(DISK)
    assert unfinished(job) == ["web1@hv2"]


DAMAGES = [b"", b"{", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, None]


@pytest.mark.parametrize("content", DAMAGES)
def test_a_damaged_note_of_what_was_left_holds_up_its_own_guest_alone(job, dom, content):
    own, others = (f"{job.journals}/left/{name}@hv2.json" for name in ("web1", "db9"))
    os.makedirs(f"{job.journals}/left")
    for path in (others, own):
        assert path == own or unreachable_target.hand_over(job) == ([], {}, {})
        if content is None:
            os.mkdir(path)
        else:
            pathlib.Path(path).write_bytes(content)
        told = unreachable_target.unfinished(job.journals)[os.path.basename(path)[:-5]]
        assert path in told.problem
    assert unreachable_target.leftover_keys(job.journals) == ["db9@hv2", "web1@hv2"]
    assert unreachable_target.hand_over(job, "hv3") == ([], {}, {})
    gone, kept, still = unreachable_target.hand_over(job)
    assert (gone, kept) == ([], {})
    assert still["hv2"].startswith(f"{own}: ")
    assert "check its files there, and remove this file" in still["hv2"]
    assert os.path.exists(own)


def test_the_last_disks_stay_when_the_target_has_lost_the_guest(job, target, dom, tmp_path):
    """Moved and confirmed; killed before the clean-up; then the target was made anew."""
    disk = tmp_path / "web1_vda.qcow2"
    disk.touch()
    broken_off(job, dom, MOVED)
    conn, path = dom.connect(), f"{job.journals}/web1.json"
    entry = message_file.read(path, JournalEntry)
    message_file.write(path, replace(entry, source_files=(str(disk),)))
    dom.undefine()
    target.up = True
    done = api.recover(conn, job)
    assert done.outcome == "moved"
    assert "is no longer on" in done.retained[str(disk)]
    assert disk.exists()


class Boot:
    """Seconds since this host was started."""

    CLOCK_BOOTTIME, now = 7, 100

    def clock_gettime(self, _which):
        return self.now


def test_a_promise_is_as_old_as_it_was_seen_here_unchanged(tmp_path, monkeypatch):
    """Its name was made by another host's clock, and the clock of this one may be put forward."""
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    monkeypatch.setattr(reservations, "time", Boot())
    folder = tmp_path / "promises"
    folder.mkdir()
    old, new = folder / "a~1024~1~1000", folder / f"b~1024~1~{int(time.time())}"
    for file in (old, new, folder / ".clock-0"):
        file.touch()
    os.utime(old, (0, 0))

    def here(after_s):
        Boot.now += after_s
        return [one.name for one in reservations.local((), str(folder))]

    assert here(0) == ["a", "b"]
    assert here(reservation.KEEP_S - 1) == ["a", "b"]
    os.utime(new)
    assert here(2) == ["b"], "a was not renewed for an hour"
    assert here(reservation.KEEP_S - 2) == ["b"]
    assert here(3) == []
    old.unlink()
    assert here(0) == []
    assert list(json.loads((tmp_path / "run" / "arrivals.json").read_text())) == [new.name]
    assert sorted(os.listdir(tmp_path / "run")) == ["arrivals.json", "arrivals.json.lock"]
    monkeypatch.setattr(paths, "RUN", "/proc/none")
    assert here(9 * reservation.KEEP_S) == ["b"], "in doubt it holds"
    assert reservations.local((), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("phase", "more", "starts"),
    [
        (MOVING, {}, False),
        (PREPARING, {}, True),
        (MOVING, {"completed": True}, True),
    ],
)
def test_what_may_be_on_the_target_is_not_started_here(job, dom, phase, more, starts):
    """A stopped guest, and a process that was killed when both hosts could have it."""
    broken_off(job, dom, phase, **more)
    if starts:
        return move_journal.require_startable(dom, job.journals)
    with pytest.raises(errors.OperationFailed, match=r"salt-run virt\.migrate_recover web1"):
        move_journal.require_startable(dom, job.journals)
    conn = dom.connect()
    dom.undefine()
    another = conn.defineXML(XML)
    return move_journal.require_startable(another, job.journals)


def test_start_asks_for_it(virt, dom, job, monkeypatch):
    broken_off(job, dom, MOVING)
    whole = move_journal.require_startable
    monkeypatch.setattr(move_journal, "require_startable", lambda found: whole(found, job.journals))
    with pytest.raises(errors.VirtError, match="target of an interrupted migration"):
        virt["virt.start"]("web1")
    assert not dom.isActive()


@pytest.mark.parametrize("phase", [MOVING, PREPARING])
@pytest.mark.parametrize(
    "found", [Side("paused", is_waiting=True), Side("paused", split=True), Side("paused")]
)
def test_what_waits_here_for_its_target_is_not_resumed(virt, dom, job, monkeypatch, phase, found):
    """It may run there on a copy of its disks, and the target be silent. One that policy=pause or a
    person has paused runs on."""
    broken_off(job, dom, phase)
    dom.create()
    dom.suspend()
    whole = move_journal.require_startable
    monkeypatch.setattr(move_journal, "require_startable", lambda found: whole(found, job.journals))
    monkeypatch.setattr(recovery, "side", lambda dom: found)
    if phase == PREPARING or found == Side("paused"):
        assert virt["virt.resume"]("web1") is True
        return
    with pytest.raises(errors.VirtError, match="target of an interrupted migration"):
        virt["virt.resume"]("web1")
    assert dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        (PAUSED, "running", "running"),
        (PAUSED, "paused", "paused"),  # the user had paused it before
        (None, "running", "paused"),  # and here meanwhile
        (PAUSING, "running", "not known"),
    ],
)
def test_a_guest_that_its_killed_migration_has_paused_runs_on(
    job, target, dom, step, before, after, answers
):
    """policy=pause; the process was killed, then libvirt ended the migration."""
    dom.create()
    broken_off(job, dom, PREPARING, pause=step)
    path = f"{job.journals}/web1.json"
    entry = message_file.read(path, JournalEntry)
    message_file.write(path, replace(entry, report=replace(entry.report, state=before)))
    dom.suspend()
    target.up = answers
    if after == "not known":
        with pytest.raises(errors.MigrationFailed, match=r"virt\.resume web1 or virt\.stop web1"):
            api.recover(dom.connect(), job)
        assert dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED
        assert unfinished(job) == ["web1"], "virt.repair names it"
        dom.resume()
    assert api.recover(dom.connect(), job).outcome == "undone"
    paused = dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED
    assert paused == (after == "paused")


def test_where_both_live_the_one_that_was_started_again_is_paused(dom, tmp_path):
    """The source lost its power after the hand-over, and somebody has started its old copy: the
    target has the memory that moved."""
    there = libvirt.open(EMPTY)
    copy = there.defineXML(dom.XMLDesc())
    dom.create()
    copy.create()
    report = GuestReport(
        "web1", dom.UUIDString(), "hv1", True, "running", process=facts.process(dom)
    )
    try:
        dom.destroy()
        dom.create()
        with pytest.raises(errors.MigrationFailed, match="was started again here"):
            recovery.resolve(dom.connect(), there, report)
        paused = libvirt.VIR_DOMAIN_PAUSED
        assert (dom.state()[0] == paused, copy.state()[0] == paused) == (True, False)
        dom.resume()
        same = replace(report, process=facts.process(dom))
        with pytest.raises(errors.MigrationFailed, match="was paused on the target"):
            recovery.resolve(dom.connect(), there, same)
        assert (dom.state()[0] == paused, copy.state()[0] == paused) == (False, True)
    finally:
        copy.destroy()
        copy.undefine()
        there.close()
