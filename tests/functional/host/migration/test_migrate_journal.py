"""The journal of a migration: one holder, complete on disk, removed at the end."""

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from saltvirt.answers.migration import UnfinishedMigration
from saltvirt.errors import BadAnswer, OperationFailed
from saltvirt.host.migration import move_journal
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry, PendingFile
from saltvirt.system import message_file
from tests.machine import open_files

ENTRY = JournalEntry(
    GuestReport("web1", "u", "hv1", True, "running"), "qemu+tls://hv2/system", created=("/a",)
)

LIBRARY = Path(__file__).resolve().parents[4] / "_utils"
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from saltvirt.host.migration.move_journal import MigrationJournal
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry
with MigrationJournal(sys.argv[2], "web1") as journal:
    journal.write(JournalEntry(GuestReport("web1", "u", "hv1", True, "running"), sys.argv[3]))
    print("held", flush=True)
    time.sleep(600)
"""


def test_what_is_written_is_read_until_it_is_closed(tmp_path):
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        assert journal.read() is None
        journal.write(ENTRY)
        assert journal.read() == journal.require_entry() == ENTRY
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        assert journal.read().created == ("/a",)
        journal.close()
    assert os.listdir(tmp_path) == []


def test_who_holds_a_journal_is_at_work_and_goes_on_to_hold_it(tmp_path):
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        assert move_journal.at_work(journal)
        assert move_journal.at_work(move_journal.MigrationJournal(tmp_path, "web1"))
    assert not move_journal.at_work(journal)


def test_a_second_migration_is_refused_and_a_killed_one_leaves_its_journal(tmp_path):
    argv = [sys.executable, "-c", HOLD, str(LIBRARY), str(tmp_path), ENTRY.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OperationFailed, match="another migration of web1"):
            move_journal.MigrationJournal(tmp_path, "web1").__enter__()
        held = UnfinishedMigration("qemu+tls://hv2/system", at_work=True, uuid="u")
        assert move_journal.unfinished(tmp_path) == {"web1": held}
        other.send_signal(signal.SIGKILL)
    assert move_journal.unfinished(tmp_path)["web1"].at_work is False
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        assert journal.read().target == ENTRY.target


def test_what_another_version_has_written_is_read(tmp_path):
    """Versions before phases, and those to come."""
    report = ENTRY.report.to_answer()
    old = {"report": {**report, "of another": 1}, "target": "hv2", "created": ["/a"],
           "source_files": [], "keep_source": False, "xml": "",
           "making": {"path": "/b", "bytes": 7}}  # fmt: skip
    (tmp_path / "web1.json").write_text(json.dumps(old))
    entry = move_journal.MigrationJournal(tmp_path, "web1").read()
    assert (entry.phase, entry.completed, entry.report) == (None, False, ENTRY.report)
    assert entry.making == PendingFile("/b", 7)
    told = entry.to_answer()
    assert {key: told[key] for key in old} == {**old, "report": report}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not JSON"), ("[" * 100_000, "it is not JSON"), ("[]", "it is not a mapping"),
        ('{"target": "hv2"}', "it is not complete: report is missing"),
        ('{"target": "hv2", "report": {"name": 1}}', "report.name is not text"),
    ],
)  # fmt: skip
def test_a_file_in_which_something_else_is_is_named(tmp_path, text, words):
    (tmp_path / "web1.json").write_text(text)
    with pytest.raises(BadAnswer, match=re.escape(f"{tmp_path}/web1.json: {words}")) as said:
        move_journal.MigrationJournal(tmp_path, "web1").read()
    assert "check which host has the guest" in str(said.value)
    with move_journal.MigrationJournal(tmp_path, "db1") as journal:
        journal.write(ENTRY)
    listed = move_journal.unfinished(tmp_path)
    assert listed["db1"] == UnfinishedMigration(ENTRY.target, uuid="u")
    assert listed["web1"] == UnfinishedMigration("", problem=str(said.value))


def mode(path):
    return path.stat().st_mode & 0o7777


def test_it_is_the_systems_own(tmp_path):
    folder = tmp_path / "migrations"
    with move_journal.MigrationJournal(folder, "web1") as journal:
        journal.write(ENTRY)
        journal.request_abort()
        assert mode(folder) == 0o700
        names = ("web1.json", "web1.json.lock", "web1.json.abort")
        assert {name: mode(folder / name) for name in names} == dict.fromkeys(names, 0o600)


def test_who_is_asked_to_end_is_the_one_that_holds_it(tmp_path):
    """What was asked of one before, or after it was over, is no order to the next."""
    journal = move_journal.MigrationJournal(tmp_path, "web1")
    journal.request_abort()
    with journal:
        assert not journal.abort_requested()
        journal.request_abort()
        assert journal.abort_requested()
    assert os.listdir(tmp_path) == []


def test_the_file_of_a_writer_that_was_killed_goes_with_it(tmp_path):
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        (tmp_path / "web1.json.new").write_text("{")
        journal.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(OperationFailed, match="no migration of web1 from here is unfinished"):
        journal.require_entry()


def test_a_lock_that_its_holder_removes_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """Two that wait for the same file would hold two different ones."""
    journal, real, removed = (
        move_journal.MigrationJournal(tmp_path, "web1"),
        fcntl.flock,
        [],
    )

    def flock(handle, how):
        real(handle, how)
        if not removed:
            removed.append(handle)
            os.unlink(f"{journal.path}.lock")
        elif len(removed) == 1:  # and another one is there by now
            removed.append(handle)
            os.unlink(f"{journal.path}.lock")
            (tmp_path / "web1.json.lock").touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    before = open_files()
    with journal:
        monkeypatch.undo()
        assert open_files() == before + 1
        with pytest.raises(OperationFailed, match="another migration of web1 is in progress"):
            move_journal.MigrationJournal(tmp_path, "web1").__enter__()


def test_nothing_stays_open(tmp_path):
    before = open_files()
    with move_journal.MigrationJournal(tmp_path, "web1") as journal:
        assert open_files() == before + 1
        journal.write(ENTRY)
        for _ in range(2):
            assert move_journal.at_work(move_journal.MigrationJournal(tmp_path, "web1"))
        assert open_files() == before + 1
    assert not move_journal.at_work(move_journal.MigrationJournal(tmp_path, "web1"))
    assert open_files() == before


def test_it_is_on_the_disk_before_the_next_thing_is_done(tmp_path, monkeypatch):
    """The whole of it first, then its name."""
    path, synced = tmp_path / "web1.json", []

    def fsync(fd):
        seen = os.fstat(fd)
        synced.append((stat.S_ISDIR(seen.st_mode), seen.st_size, path.exists()))

    monkeypatch.setattr(move_journal.os, "fsync", fsync)
    message_file.write(str(path), ENTRY)
    (folder, size, there), (also, _, after) = synced
    assert (folder, size, there) == (False, path.stat().st_size, False)
    assert (also, after) == (True, True)
    message_file.write(str(path), JournalEntry(GuestReport("a", "u", "h", True, "x"), "b"))
    assert message_file.read(str(path), JournalEntry).target == "b", "and nothing of the longer one"


def test_a_migration_that_ends_while_it_is_asked_for_is_none(tmp_path, monkeypatch):
    (tmp_path / "web1.json").touch()
    monkeypatch.setattr(move_journal.MigrationJournal, "read", lambda _journal: None)
    assert move_journal.unfinished(tmp_path) == {}


def test_only_journals_are_migrations(tmp_path):
    for name in ("web2.json", "web1.json", "web1.json.new", "web1.json.lock", "notes"):
        (tmp_path / name).touch()
    assert move_journal.names(tmp_path) == ["web1", "web2"]
    assert move_journal.names(tmp_path / "none") == []


def test_a_folder_in_the_place_of_a_journal_is_named(tmp_path):
    (tmp_path / "web1.json").mkdir()
    with pytest.raises(BadAnswer, match=r"web1\.json: it cannot be read: Is a directory"):
        move_journal.MigrationJournal(tmp_path, "web1").read()
    with pytest.raises(OperationFailed, match=r"cannot write .*web1\.json: Is a directory"):
        message_file.write(str(tmp_path / "web1.json"), ENTRY)
