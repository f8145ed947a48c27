"""Files below a target's folder: refusals of the system, and concurrent changes."""

import os
import re

import pytest

from saltvirt import errors
from saltvirt.backup.target.safe_folder import Busy, SafeFolder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "root").mkdir(mode=0o700)
    return SafeFolder(str(tmp_path / "root"))


def test_a_file_that_cannot_get_its_name_leaves_none_and_changes_none(folder):
    folder.make("a", "taken")
    with pytest.raises(errors.BadAnswer, match="a/taken has an unexpected type"):
        folder.write("a", "taken", data=b"new")
    longest = "x" * 255  # and with what it is called meanwhile it is longer
    with pytest.raises(errors.OperationFailed, match="x: File name too long"):
        folder.write("a", longest, data=b"new")
    assert folder.names("a") == ["taken"]
    folder.write("a", "file", data=b"old")
    folder.write("a", "file", data=b"new")
    assert folder.read("a", "file", max_bytes=3) == b"new"


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\n", "a\0", "ä", "x" * 256])
def test_what_is_no_name_is_no_place(folder, name):
    for what in (
        lambda: folder.read(name, max_bytes=1),
        lambda: folder.make("a", name),
        lambda: folder.write(name, data=b""),
        lambda: folder.remove("a", name),
        lambda: folder.path("a", name),
    ):
        folder.make("a")
        with pytest.raises(
            errors.BadAnswer, match=f"^{re.escape(repr(name)[:9])}.*is not a valid file name"
        ):
            what()
    assert folder.names() == ["a"] and folder.names("a") == []


def test_a_name_that_is_taken_is_not_given(folder):
    folder.make("one")
    folder.make("two")
    folder.write("two", "file", data=b"")
    with pytest.raises(errors.AlreadyExists, match="root/two already exists"):
        folder.rename("one", to="two")
    assert folder.names() == ["one", "two"] and folder.names("two") == ["file"]


def test_what_is_gone_is_removed_again_without_a_word(folder):
    folder.make("a", "b")
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == []


@pytest.mark.parametrize("alone", [False, True])
def test_a_file_that_another_takes_the_place_of_is_not_held(folder, monkeypatch, alone):
    """Whoever removed it held it alone; the lock of one that is open only is worth nothing."""
    folder.write("a", data=b"old")
    lock = SafeFolder._lock

    def late(self, *how, **options):
        folder.write("a", data=b"new")
        lock(self, *how, **options)

    monkeypatch.setattr(SafeFolder, "_lock", late)
    another = pytest.raises(errors.NotFound, match="root/a was replaced")
    with another, folder.file_lock("a", exclusive=alone):
        pytest.fail("it is held")
    monkeypatch.undo()
    with folder.file_lock("a", exclusive=True), pytest.raises(Busy), folder.file_lock("a"):
        pytest.fail("it is held twice")


def test_why_there_is_no_lock_is_said(folder):
    """As of a file system that has none."""
    folder.write("a", data=b"")
    fd = os.open(f"{folder.root}/a", os.O_PATH)
    try:
        with pytest.raises(errors.OperationFailed, match=r"cannot lock .*root/a: Bad file desc"):
            folder._lock(fd, ("a",))
    finally:
        os.close(fd)


def test_who_is_at_work_and_at_what_is_said(tmp_path):
    tmp_path.chmod(0o700)
    found = SafeFolder(str(tmp_path))
    with found.lock("lock", purpose="virt.backup_prune"):
        words = (
            rf"{tmp_path} is locked by another process: virt\.backup_prune, process {os.getpid()}$"
        )
        with pytest.raises(Busy, match=words), found.lock("lock"):
            pass
    busy = pytest.raises(Busy, match=f"{tmp_path} is locked by another process$")
    with found.lock("lock"), busy, found.lock("lock"):
        pass
