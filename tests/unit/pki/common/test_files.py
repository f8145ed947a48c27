"""Files of the authorities cannot be damaged by interruptions."""

import fcntl
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")


from saltvirt.errors import PkiError
from saltvirt.pki.common import files
from saltvirt.system import file_lock
from tests.machine import open_files


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_what_is_not_there_is_none_and_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    assert files.read(tmp_path / "x") == b"x"
    assert files.read(tmp_path / "none") is None
    with pytest.raises(PkiError, match=r"cannot read .*: Is a directory"):
        files.read(tmp_path)
    for path in ("/a\0b", "/a\ud800"):
        with pytest.raises(PkiError, match=r"cannot read"):
            files.read(path)


def test_a_file_is_replaced_with_its_rights(tmp_path):
    path = tmp_path / "x"
    files.write(path, b"1")
    assert (path.read_bytes(), mode(path)) == (b"1", 0o600)
    path.chmod(0o644)
    files.write(path, b"2", 0o640, (os.getuid(), os.getgid()))
    assert (path.read_bytes(), mode(path)) == (b"2", 0o640)
    assert os.listdir(tmp_path) == ["x"]


def test_the_owner_is_who_is_named(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "fchown", lambda handle, *owner: asked.append(owner))
    files.write(tmp_path / "x", b"x")
    files.write(tmp_path / "x", b"x", owner=(7, 8))
    assert asked == [(7, 8)]
    monkeypatch.setattr(os, "chown", lambda path, *owner: asked.append((path, *owner)))
    files.folder(tmp_path / "one")
    files.folder(tmp_path / "two", owner=(7, 8))
    assert asked[1:] == [(tmp_path / "two", 7, 8)]


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert files.folder(tmp_path / "a" / "b" / "c").is_dir()


def test_all_of_them_or_none(tmp_path, monkeypatch):
    """What is there stays until all that is new is on the disk."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    news = [files.NewFile(tmp_path / "a", b"new"), files.NewFile(tmp_path / "b", b"")]
    with pytest.raises(PkiError, match=r"refusing to write an empty .*/b"):
        files.write_all(news)
    news[1] = files.NewFile(tmp_path / "none" / "b", b"new")
    with pytest.raises(PkiError, match=r"cannot write .*/none/b: No such file"):
        files.write_all(news)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_it_is_on_the_disk_before_it_has_its_name_and_the_name_is_too(tmp_path, monkeypatch):
    done, real = [], os.replace

    def fsync(handle):
        path = os.readlink(f"/proc/self/fd/{handle}")
        content = Path(path).read_bytes() if os.path.isfile(path) else "folder"
        done.append(("sync", content))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(
        os, "replace", lambda *of, **more: (done.append("named"), real(*of, **more))
    )
    files.write(tmp_path / "x", b"x")
    assert done == [("sync", b"x"), "named", ("sync", "folder")]
    done.clear()
    files.rename(tmp_path / "x", tmp_path / "y")
    assert done == ["named", ("sync", "folder")]
    assert os.listdir(tmp_path) == ["y"]
    with pytest.raises(PkiError, match=r"cannot move .*/x to .*/y: No such file"):
        files.rename(tmp_path / "x", tmp_path / "y")


def test_no_handle_stays_open(tmp_path):
    before = open_files()
    for _ in range(3):
        files.write(tmp_path / "x", b"x")
        with files.locked(tmp_path / "lock"):
            pass
    assert open_files() == before


def test_a_folder_is_private_when_we_make_it_and_stays_as_it_is(tmp_path):
    before = os.umask(0)
    try:
        made = files.folder(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert made == tmp_path / "a" / "b"
    assert mode(made) == 0o700
    before = os.umask(0o077)
    try:
        assert mode(files.folder(tmp_path / "c", 0o755)) == 0o755
    finally:
        os.umask(before)
    assert mode(files.folder(tmp_path / "c")) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(PkiError, match=r"cannot create the folder .*/file/x: File exists"):
        files.folder(tmp_path / "file" / "x")


def test_a_folder_that_another_process_makes_at_the_same_time_is_ours_too(tmp_path, monkeypatch):
    real, asked = Path.is_dir, []

    def is_dir(path):
        asked.append(path)
        return real(path) and len(asked) > 1

    monkeypatch.setattr(Path, "is_dir", is_dir)
    (tmp_path / "a").mkdir()
    assert files.folder(tmp_path / "a") == tmp_path / "a"


def test_what_a_killed_writer_left_goes_and_nothing_else(tmp_path):
    for name in (".saltvirt-x.1", "saltvirt-x", ".other"):
        (tmp_path / name).touch()
    (tmp_path / ".saltvirt-folder").mkdir()
    files.sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".other", ".saltvirt-folder", "saltvirt-x"]


@pytest.mark.parametrize(
    ("has", "may", "left", "changed"),
    [
        (0o644, 0o600, 0o600, True), (0o600, 0o600, 0o600, False), (0o400, 0o600, 0o400, False),
        (0o4600, 0o600, 0o600, True), (0o640, 0o640, 0o640, False),
    ],
)  # fmt: skip
def test_rights_that_an_older_version_gave_go(tmp_path, has, may, left, changed):
    path = tmp_path / "x"
    path.touch()
    path.chmod(has)
    assert files.private(str(path), may) is changed
    assert mode(path) == left


def test_rights_of_what_is_not_there_or_cannot_be_asked(tmp_path):
    assert files.private(tmp_path / "none") is False
    (tmp_path / "file").touch()
    with pytest.raises(
        PkiError, match=r"cannot remove the permissions of others from .*: Not a directory"
    ):
        files.private(tmp_path / "file" / "x")


# -- locks --------------------------------------------------------------------------------


def free(path, shared=False):
    try:
        with files.locked(path, shared, timeout_s=0):
            return True
    except PkiError:
        return False


def test_who_holds_a_lock_is_alone_unless_all_share_it(tmp_path):
    path = tmp_path / "lock"
    with files.locked(path):
        assert mode(path) == 0o600
        assert (free(path), free(path, shared=True)) == (False, False)
    with files.locked(path, shared=True):
        assert (free(path), free(path, shared=True)) == (False, True)
    assert free(path)
    with pytest.raises(ZeroDivisionError), files.locked(path):
        raise ZeroDivisionError
    assert free(path)


def test_who_waits_gets_it_or_is_told_who_has_it(tmp_path, monkeypatch):
    path, clock = tmp_path / "lock", [0.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += 1

    monkeypatch.setattr(file_lock, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    with files.locked(path):
        words = f"another process has held {path} for 3 s: find it with fuser {path}"
        with pytest.raises(PkiError, match=words), files.locked(path, timeout_s=3):
            pass
    assert len(slept) == 4, "one who waits three seconds asks in the last of them, too"
    holder = files.locked(path)
    holder.__enter__()
    monkeypatch.setattr(file_lock.time, "sleep", lambda seconds: holder.__exit__(None, None, None))
    with files.locked(path, timeout_s=3):
        assert len(slept) == 4, "and it is free by then"
    with pytest.raises(PkiError, match=r"cannot open the lock .*: Is a directory"):
        files.locked(tmp_path).__enter__()


def test_a_lock_is_not_inherited(tmp_path, monkeypatch):
    seen = []
    real = fcntl.flock

    def flock(handle, kind):
        seen.append(fcntl.fcntl(handle, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)
        real(handle, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    with files.locked(tmp_path / "lock"):
        assert seen == [fcntl.FD_CLOEXEC]
