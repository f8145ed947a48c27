"""The target's machine and the output of the program that reads disks, and existing files at the
target."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.target import keyfile, pull, receive
from tests.functional.backed_up import UUID, Guest, disk, told

JOB = pull.PullJob("/", "hv1", 1, "", ())


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs some Python in the program's place: what it has done, and what it told meanwhile."""
    monkeypatch.setattr(pull, "RUN", str(tmp_path / "run"))

    def call(script, job=JOB):
        told = []
        argv = [sys.executable, "-c", f"import os, signal, sys\n{script}"]
        return receive._run(argv, job, told.append), told

    return call


def test_what_it_has_done_is_taken_when_it_is_said(run):
    """It may still be at work: then it is at an end."""
    script = """print('{"done_bytes": 1}')\nprint('{"done": [7]}', flush=True)\nsignal.pause()"""
    assert run(script) == ([7], [{"done_bytes": 1}])


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("""print('{"error": "no room"}')""", "^no room$"),
        ("sys.exit('first\\n\\nlast words')", "that reads the disks died: first / last words$"),
        ("", "the program that reads the disks died: no output$"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "reads the disks died: no output$"),
        ("signal.alarm(1); signal.pause()", f"^the host did not answer for {pull.SILENT_S} s$"),
    ],
)
def test_why_there_is_nothing_is_said(run, script, words):
    with pytest.raises(errors.OperationFailed, match=words):
        run(script)


def test_one_that_dies_before_it_has_heard_everything(run):
    long = pull.PullJob("/", "x" * 2**21, 1, "", ())
    with pytest.raises(errors.OperationFailed, match=r"died: no more of it$"):
        run("os.close(0); sys.exit('no more of it')", long)


def test_a_backup_whose_record_cannot_be_read_is_listed_with_why(tmp_path):
    guest = Guest(tmp_path / "target")
    good, spoiled = guest.back_up(), guest.back_up(whole=True)
    Path(guest.target.folder.root, UUID, spoiled, "record.json").write_text("{")
    first, second = receive.listing(guest.target)
    assert (first.backup_id, first.guest, first.problem) == (good, "web1", None)
    assert (second.backup_id, second.uuid, second.guest) == (spoiled, UUID, None)
    assert "record.json" in second.problem and "\n" not in second.problem
    again = [one.backup_id for one in receive.listing(guest.target, UUID)]
    assert again == [first.backup_id, second.backup_id]


@pytest.mark.parametrize(("told", "when"), [
    ("2026-11-26T13:00:00Z", "2026-11-26T13:00:00Z"),
    ("2026-11-26T12:50:00Z", "2026-11-26T12:50:00Z"),
    ("2026-11-26T12:49:59Z", "2026-11-26T13:00:00Z"),
    ("2026-11-26T13:00:01Z", "2026-11-26T13:00:00Z"),
    ("no time", "2026-11-26T13:00:00Z"), (None, "2026-11-26T13:00:00Z"),
])  # fmt: skip
def test_the_moment_is_that_of_the_disks_if_its_clock_is_near_ours(told, when):
    assert receive._taken_at(told, "2026-11-26T13:00:00Z") == when


def test_a_good_backup_whose_key_is_lost_is_listed_with_that(tmp_path, monkeypatch):
    """Else it is called good until somebody needs it."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(keyfile, "FOLDER", str(folder))
    path = folder / "vault.key"
    path.write_text("k" * 44)
    path.chmod(0o600)
    name = "000001-20261126T130000Z-00000000"
    sealed = replace(disk(name), key=keyfile.load("vault").record_name, stored_bytes=7)
    of = told([sealed], backup_id=name, uuid=UUID)
    stock = Catalog(
        [StoredBackup(name, of, lengths={"vda.qcow2": 7, "vda.pieces": 1, "domain.xml": 1})]
    )
    assert receive._list_entry(stock.backups[name], UUID, stock, 0).problem is None
    path.unlink()
    lost = receive._list_entry(stock.backups[name], UUID, stock, 0).problem
    assert f"cannot read the key {path}" in lost
    path.write_text("o" * 44)
    path.chmod(0o600)
    other = receive._list_entry(stock.backups[name], UUID, stock, 0).problem
    assert "is not the key that this backup was encrypted with" in other
