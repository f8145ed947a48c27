"""A migration that is interrupted between two of its lines: one guest remains, with its newest
data."""

import contextlib
import os
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.host.migration import (
    confirm,
    departures,
    migration,
    move_journal,
    offline,
    recovery,
    remote_storage,
    reservations,
    target_files,
    target_leftovers,
    unreachable_target,
)
from saltvirt.host.storage import files, sharing
from saltvirt.migration.facts import GuestReport, MachineReport, TargetReport
from saltvirt.migration.journal import MOVED, MOVING, PREPARING, JournalEntry
from saltvirt.system import message_file
from tests.functional.conftest import EMPTY
from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import XML, dom, job  # noqa: F401


@pytest.fixture
def peer(monkeypatch, tmp_path):
    """The other host's libvirt, which answers."""
    conn = libvirt.open(EMPTY)
    monkeypatch.setattr(recovery, "connect_target", lambda _job, _uri: contextlib.nullcontext(conn))
    monkeypatch.setattr(recovery, "has_job", lambda _dom: False)  # the test driver has none
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    monkeypatch.setattr(reservations, "FOLDER", str(tmp_path / "reservations"))
    yield conn
    conn.close()


def report(dom, **more):  # noqa: F811
    found = {"active": False, "state": "shutdown", "autostart": True, **more}
    return GuestReport("web1", dom.UUIDString(), "hv1", **found)


def begun(job, about, **more):  # noqa: F811
    """What a process that was killed leaves."""
    with move_journal.MigrationJournal(job.journals, "web1") as journal:
        entry = JournalEntry(about, "qemu+tls://hv2/system", MOVING)
        journal.write(replace(entry, **more))
        return journal


def came(peer, dom, start=False):  # noqa: F811
    """The guest is on the target."""
    there = peer.defineXML(dom.XMLDesc(0).replace(" id='", " x='"))
    assert there.UUIDString() == dom.UUIDString()
    if start:
        there.create()
    return there


def test_a_copy_does_not_start_by_itself_while_the_guest_is_here(peer, dom):  # noqa: F811
    """Both hosts lose their power before it is forgotten here: it must not come up on both."""
    there = came(peer, dom)
    dom.setAutostart(1)
    confirm.confirm(dom.connect(), peer, report(dom))
    assert (dom.autostart(), there.autostart()) == (1, 0)
    confirm.transfer_autostart(dom.connect(), peer, report(dom))
    assert (dom.autostart(), there.autostart()) == (0, 1), "undefinesource=False"
    confirm.transfer_autostart(dom.connect(), peer, report(dom, autostart=False))
    assert (dom.autostart(), there.autostart()) == (0, 0)


@pytest.mark.parametrize("active", [False, True])
def test_a_guest_whose_move_was_ended_later_starts_with_its_host(peer, dom, job, active):  # noqa: F811
    """Killed after libvirt had moved it."""
    about, conn = report(dom, active=active, state="running" if active else "shutdown"), None
    there = came(peer, dom, start=active)
    journal = begun(job, about)
    conn = dom.connect()
    dom.undefine()
    assert recovery.recover(conn, journal, job).outcome == "moved"
    assert there.autostart()


CHECKPOINT = (
    "<domaincheckpoint><name>salt-virt.1</name><creationTime>1</creationTime>"
    "<disks><disk name='vda' checkpoint='bitmap'/></disks></domaincheckpoint>"
)


@pytest.mark.parametrize("over", [False, True])
def test_the_target_is_told_of_the_checkpoints_by_who_ends_the_move(peer, dom, job, over):  # noqa: F811
    """Killed after libvirt had moved it."""
    there = came(peer, dom, start=True)
    conn = dom.connect()
    for _ in range(2):
        journal = begun(job, report(dom), phase=MOVED, completed=over, checkpoints=(CHECKPOINT,))
        assert recovery.recover(conn, journal, job).checkpoints_lost is None
        assert [one.getName() for one in there.listAllCheckpoints()] == ["salt-virt.1"]
    parent = "2</name><parent><name>nobody</name></parent>"
    broken = CHECKPOINT.replace("1</name>", parent)
    journal = begun(job, report(dom), phase=MOVED, completed=over, checkpoints=(broken,))
    assert list(recovery.recover(conn, journal, job).checkpoints_lost) == ["salt-virt.2"]
    journal = begun(
        job,
        report(dom),
        phase=MOVED,
        completed=over,
        checkpoints=(CHECKPOINT.replace("1<", "3<", 1),),
    )
    there.listAllCheckpoints()[0].delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)
    there.undefine()
    there.destroy()
    assert recovery.recover(conn, journal, job).checkpoints_lost is None


@pytest.fixture
def real(peer, libvirtd, tmp_path, monkeypatch):  # noqa: F811
    """The other host's libvirt is a real one; a disk that was copied to it is in ``copy``."""
    conn = libvirt.open(libvirtd.uri)
    monkeypatch.setattr(recovery, "connect_target", lambda _job, _uri: contextlib.nullcontext(conn))
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "target_leftovers"))
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: None)
    conn.copy = tmp_path / "vm" / "web1_vda"
    conn.copy.parent.mkdir()
    conn.copy.write_bytes(b"as it was copied")
    yield conn
    for left in conn.listAllDomains():
        left.undefine()
    conn.close()


def copied(real):
    path = str(real.copy)
    return {"created": [path], "fingerprints": {path: remote_storage.fingerprint(real, path)}}


@pytest.mark.parametrize("defined", [True, False])
def test_a_copy_that_ran_on_the_target_is_not_taken_for_ours(real, dom, job, defined):  # noqa: F811
    """Killed after the copy; a person started it there and stopped it: that disk is the newer."""
    journal = begun(job, report(dom), **copied(real))
    if defined:
        real.defineXML(
            f"<domain type='qemu'><name>web1</name><uuid>{dom.UUIDString()}</uuid>"
            "<memory>65536</memory><os><type arch='x86_64'>hvm</type></os></domain>"
        )
    real.copy.write_bytes(b"newer")
    if defined:
        with pytest.raises(errors.MigrationFailed, match=r"may be newer.*virt\.undefine web1"):
            recovery.recover(dom.connect(), journal, job)
        assert real.lookupByName("web1")
        assert journal.read()
        real.lookupByName("web1").undefine()
    found = recovery.recover(dom.connect(), journal, job)
    assert "may be newer" in found.retained[str(real.copy)]
    assert target_leftovers.names() == []
    assert real.copy.read_bytes() == b"newer"


def test_a_copy_that_nobody_touched_is_taken_away(real, dom, job):  # noqa: F811
    journal = begun(job, report(dom), **copied(real))
    recovery.recover(dom.connect(), journal, job)
    assert target_leftovers.clean(real, "web1") == ([str(real.copy)], {})


def test_what_a_dead_target_holds_is_remembered_as_it_was(real, dom, job, monkeypatch):  # noqa: F811
    begun(job, report(dom), **copied(real))
    alive = recovery.connect_target

    def dead(_job, _uri):
        raise errors.ConnectionFailed("no route")

    monkeypatch.setattr(recovery, "connect_target", dead)
    with move_journal.MigrationJournal(job.journals, "web1") as journal:
        unreachable_target.end_migration(dom.connect(), journal, job, lost="hv2")
    real.copy.write_bytes(b"newer")
    monkeypatch.setattr(recovery, "connect_target", alive)
    _, kept, still = unreachable_target.hand_over(job)
    assert not still
    assert "may be newer" in kept[str(real.copy)]
    assert target_leftovers.names() == []


@pytest.mark.parametrize("start", [False, True])
def test_what_was_not_sent_yet_is_not_there_by_us(peer, dom, job, start, tmp_path):  # noqa: F811
    """A person has defined it on the target: its disks there are half copied."""
    disk = tmp_path / "web1_vda"
    disk.touch()
    there = came(peer, dom, start)
    journal = begun(job, report(dom), phase=PREPARING, source_files=[str(disk)])
    with pytest.raises(errors.MigrationFailed, match="did not create there: keep one"):
        recovery.recover(dom.connect(), journal, job)
    assert disk.exists()
    assert dom.isPersistent()
    assert peer.lookupByName("web1").isActive() == start
    if start:
        there.destroy()
    there.undefine()
    assert recovery.recover(dom.connect(), journal, job).outcome == "undone"


def test_no_definition_is_replaced_on_the_target(peer, dom):  # noqa: F811
    """Somebody has defined it there while the disks were copied."""
    there = came(peer, dom)
    host = TargetReport("hv2", machine=MachineReport(has_emulator=True))
    with pytest.raises(errors.AlreadyExists, match="web1 has just appeared on"):
        offline.define(target_files.MigrationTarget(peer, None, None, None), dom, report(dom), host)
    there.undefine()
    peer.defineXML(XML)  # another, of that name
    with pytest.raises(errors.AlreadyExists, match="web1 has just appeared on"):
        offline.define(target_files.MigrationTarget(peer, None, None, None), dom, report(dom), host)


@pytest.mark.parametrize("own", [True, False])
def test_variables_that_both_hosts_share_are_not_copied_onto_themselves(tmp_path, own):
    store = tmp_path / "web1_VARS.fd"
    store.touch()

    class Target:
        copies = []

        def copy(self, path):
            self.copies.append(path)

    target = Target()
    target.copies = []
    about = GuestReport("web1", "u", "hv1", False, "shutdown", nvram=str(store))
    offline.copy(target, about, [], about.nvram if own else None)
    assert target.copies == ([str(store)] if own else [])


def test_only_the_guests_own_variables_are_left_for_deletion_after_a_move(tmp_path, monkeypatch):
    """A definition may name the template of the distribution."""
    monkeypatch.setattr(files, "_VARIABLES", str(tmp_path))
    move = object.__new__(migration.Migration)
    move.plans, move.host = [], TargetReport("hv2")
    for name, left in (("web1_VARS.fd", True), ("OVMF_VARS_4M.fd", False)):
        path = str(tmp_path / name)
        move.report = GuestReport("web1", "u", "hv1", False, "shutdown", nvram=path)
        assert move._own_variables() == path
        assert move._source_files() == ([path] if left else [])


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    """Of the source: the journal is as it was before."""
    path = str(tmp_path / "web1.json")
    entry = JournalEntry(GuestReport("web1", "u", "hv1", False, "shutdown"), "hv2", PREPARING)
    message_file.write(path, entry)

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(move_journal.os, "fsync", full)
    with pytest.raises(errors.OperationFailed, match=r"web1\.json: No space left on device"):
        message_file.write(path, replace(entry, phase=MOVING))
    monkeypatch.undo()
    assert message_file.read(path, JournalEntry) == entry


def test_a_disk_is_deleted_and_not_the_link_to_it(dom, tmp_path, libvirtd):  # noqa: F811
    """What is said to be deleted is."""
    conn = libvirt.open(libvirtd.uri)
    disk, link = tmp_path / "data" / "web1_vda", tmp_path / "vm" / "web1_vda"
    for path in (disk, link):
        path.parent.mkdir()
    disk.write_bytes(b"x")
    link.symlink_to(disk)
    about = GuestReport("web1", dom.UUIDString(), "hv1", False, "shutdown")
    deleted, kept = confirm.remove_source(conn, about, [str(link)])
    assert (deleted, kept) == ([str(link)], {})
    assert not disk.exists()
    assert not os.path.lexists(link)
    conn.close()


class Cut:
    """A connection that breaks when it is asked for a domain."""

    def __init__(self, conn):
        self.conn = conn

    def __getattr__(self, name):
        if name == "lookupByUUIDString":
            raise libvirt.libvirtError("client socket is closed")
        return getattr(self.conn, name)


@pytest.mark.parametrize("phase", [MOVED, MOVING])
def test_a_connection_that_breaks_is_an_error_of_ours(peer, dom, job, monkeypatch, phase):  # noqa: F811
    journal = begun(job, report(dom), phase=phase)
    monkeypatch.setattr(
        recovery, "connect_target", lambda _job, _uri: contextlib.nullcontext(Cut(peer))
    )
    with pytest.raises(errors.VirtError, match="socket is closed"):
        recovery.recover(dom.connect(), journal, job)
    assert journal.read()
