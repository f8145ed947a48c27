"""The journal of a migration: one holder, whole on the disk, gone when it is over."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saltvirt.answers.migration import UnfinishedMigration
from saltvirt.errors import BadAnswer, OperationFailed
from saltvirt.host.migration import move_journal
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry, PendingFile

ENTRY = JournalEntry(
    GuestReport("web1", "u", "hv1", True, "running"), "qemu+tls://hv2/system", created=("/a",)
)

LIBRARY = Path(__file__).resolve().parents[2] / "_utils"
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from saltvirt.host.migration.move_journal import Journal
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import JournalEntry
with Journal(sys.argv[2], "web1") as journal:
    journal.write(JournalEntry(GuestReport("web1", "u", "hv1", True, "running"), sys.argv[3]))
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_is_written_is_read_until_it_is_closed(tmp_path):
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read() is None
        journal.write(ENTRY)
        assert journal.read() == ENTRY
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read().created == ("/a",)
        journal.close()
    assert os.listdir(tmp_path) == []


def test_a_second_migration_is_refused_and_a_killed_one_leaves_its_journal(tmp_path):
    argv = [sys.executable, "-c", HOLD, str(LIBRARY), str(tmp_path), ENTRY.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OperationFailed, match="another migration of web1"):
            move_journal.Journal(tmp_path, "web1").__enter__()
        held = UnfinishedMigration("qemu+tls://hv2/system", at_work=True)
        assert move_journal.unfinished(tmp_path) == {"web1": held}
        other.send_signal(signal.SIGKILL)
    assert move_journal.unfinished(tmp_path)["web1"].at_work is False
    with move_journal.Journal(tmp_path, "web1") as journal:
        assert journal.read().target == ENTRY.target


def test_what_another_version_has_written_is_read(tmp_path):
    """Versions before phases, and those to come."""
    report = ENTRY.report.to_answer()
    old = {"report": {**report, "of another": 1}, "target": "hv2", "created": ["/a"], "left": [],
           "keep_source": False, "xml": "", "making": {"path": "/b", "bytes": 7}}  # fmt: skip
    (tmp_path / "web1.json").write_text(json.dumps(old))
    entry = move_journal.Journal(tmp_path, "web1").read()
    assert (entry.phase, entry.over, entry.report) == (None, False, ENTRY.report)
    assert entry.making == PendingFile("/b", 7)
    told = entry.to_answer()
    assert {key: told[key] for key in old} == {**old, "report": report}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not JSON"), ("[" * 100_000, "it is not JSON"), ("[]", "it is not a mapping"),
        ('{"target": "hv2"}', "it is not whole: report is missing"),
        ('{"target": "hv2", "report": {"name": 1}}', "report.name is not text"),
    ],
)  # fmt: skip
def test_a_file_in_which_something_else_is_is_named(tmp_path, text, words):
    (tmp_path / "web1.json").write_text(text)
    with pytest.raises(BadAnswer, match=re.escape(f"{tmp_path}/web1.json: {words}")) as said:
        move_journal.Journal(tmp_path, "web1").read()
    assert "look which host has the guest" in str(said.value)
    with move_journal.Journal(tmp_path, "db1") as journal:
        journal.write(ENTRY)
    listed = move_journal.unfinished(tmp_path)
    assert listed["db1"] == UnfinishedMigration(ENTRY.target)
    assert listed["web1"] == UnfinishedMigration("", wrong=str(said.value))
