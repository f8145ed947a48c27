"""A new file that gets its name when it is complete."""

import errno
import os
import resource

import pytest

from saltvirt import errors
from saltvirt.backup.export import request
from saltvirt.fleet import private
from saltvirt.host.migration import departures
from saltvirt.host.node import maintenance
from saltvirt.system import atomic_file, file_lock, mount_guard


def made(path, data=b"new", overwrite=False):
    with atomic_file.create(str(path), overwrite) as write:
        write(data)


def test_it_is_there_whole_and_for_one_alone(tmp_path):
    path = tmp_path / "a"
    with atomic_file.create(str(path), False) as write:
        write(b"1" * 100_000)
        [part] = tmp_path.iterdir()
        assert part != path and part.stat().st_mode & 0o777 == 0o600
        write(b"2")
    assert path.read_bytes() == b"1" * 100_000 + b"2"
    assert path.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["a"]


def test_what_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_file.create(str(tmp_path / "a"), False) as write:
        write(b"1")
        _ = 1 / 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_there_stays_and_is_not_followed(tmp_path, kind):
    other, path = tmp_path / "other", tmp_path / "a"
    if kind == "file":
        path.write_text("old")
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_text("old")
    with pytest.raises(errors.AlreadyExists, match="overwrite=True"):
        made(path)
    assert not other.exists() or other.read_text() == "old"
    made(path, overwrite=True)
    assert path.read_text() == "new" and not path.is_symlink()
    assert not other.exists() or other.read_text() == "old"


def test_what_comes_meanwhile_stays(tmp_path):
    with (
        pytest.raises(errors.AlreadyExists),
        atomic_file.create(str(tmp_path / "a"), False) as write,
    ):
        write(b"ours")
        (tmp_path / "a").write_text("theirs")
    assert (tmp_path / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["a"]


def test_a_folder_that_is_none_and_one_in_the_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in ("none/a", "link/a", "real", ""):
        for overwrite in (True, False):
            with pytest.raises(errors.InvalidInput):
                made(f"{tmp_path}/{path}", overwrite=overwrite)
    assert os.listdir(tmp_path / "real") == []


def test_only_files_are_read(tmp_path):
    (tmp_path / "a").write_text("text")
    os.mkfifo(tmp_path / "fifo")
    with atomic_file.open_existing(str(tmp_path / "a")) as file:
        assert file.read() == b"text"
    for path in ("fifo", "none", "", "a\0b"):
        with pytest.raises(errors.InvalidInput), atomic_file.open_existing(f"{tmp_path}/{path}"):
            pass
    with pytest.raises(errors.InvalidInput), atomic_file.open_existing("/dev/zero"):
        pass


@pytest.mark.parametrize("path", ["/", "/tmp/a\0b"])
def test_what_can_be_the_name_of_no_file(path):
    with pytest.raises(errors.InvalidInput, match="is not the path of a file"):
        made(path)


def test_what_the_system_refuses_is_said_of_the_path(tmp_path):
    for path, words in {
        f"{tmp_path}/{'x' * 256}": "xxx … cannot be written: File name too long",
        "/proc/a": "'/proc/a' cannot be written: No such file or directory",
    }.items():
        with pytest.raises(errors.OperationFailed, match=words):
            made(path)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path):
    """The system takes a part of what is written, and then no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writing = atomic_file.create(str(tmp_path / "a"), False)
    with (
        pytest.raises(errors.OperationFailed, match="cannot be written: File too large"),
        writing as write,
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            write(b"1" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_comes_meanwhile_stays(tmp_path):
    path = tmp_path / "a"
    refused = pytest.raises(errors.OperationFailed, match="cannot be written: Is a directory")
    with refused, atomic_file.create(str(path), True) as write:
        write(b"ours")
        path.mkdir()
    assert path.is_dir() and os.listdir(tmp_path) == ["a"]


# -- write: replace a file ------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch):
    """What reaches the disk, in order: ("sync", name) and ("name", new name)."""
    done, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        fsync(handle)
        done.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))

    def named(source, target, **options):
        replace(source, target, **options)
        done.append(("name", os.path.basename(target)))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    return done


@pytest.mark.parametrize("by_folder", [False, True])
def test_content_and_name_are_on_disk_in_this_order(tmp_path, steps, by_folder):
    if by_folder:
        folder = os.open(tmp_path, os.O_PATH)
        atomic_file.write("a", b"new", dir_fd=folder)
        os.close(folder)
    else:
        atomic_file.write(tmp_path / "a", b"new")
    assert steps == [("sync", "a.new"), ("name", "a"), ("sync", tmp_path.name)]
    assert (tmp_path / "a").read_bytes() == b"new" and os.listdir(tmp_path) == ["a"]


def test_transient_content_does_not_wait_for_the_disk(tmp_path, steps):
    atomic_file.write(tmp_path / "a", b"new", durable=False)
    assert steps == [("name", "a")] and (tmp_path / "a").read_bytes() == b"new"


def test_a_new_file_of_create_keeps_its_name_after_a_power_cut(tmp_path, steps):
    for overwrite in (False, True):
        made(tmp_path / "a", overwrite=overwrite)
        assert steps[-1] == ("sync", tmp_path.name)


def test_mode_and_owner_do_not_depend_on_the_umask(tmp_path, monkeypatch):
    owners, before = [], os.umask(0o077)
    monkeypatch.setattr(os, "fchown", lambda _handle, *owner: owners.append(owner))
    try:
        atomic_file.write(tmp_path / "a", b"", mode=0o644, owner=(7, 8))
        atomic_file.write(tmp_path / "b", b"")
    finally:
        os.umask(before)
    assert owners == [(7, 8)]
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o644, 0o600]


@pytest.mark.parametrize("left", ["file", "link"])
def test_what_a_killed_process_left_is_replaced_and_not_followed(tmp_path, left):
    other = tmp_path / "other"
    other.write_text("mine")
    if left == "link":
        (tmp_path / "a.new").symlink_to(other)
    else:
        (tmp_path / "a.new").write_text("longer than what is new")
    atomic_file.write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new" and other.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["a", "other"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("write", [atomic_file.write, atomic_file.write_locked])
def test_a_failed_step_leaves_the_old_file_alone(tmp_path, monkeypatch, step, write):
    (tmp_path / "a").write_text("old")
    before = os.listdir("/proc/self/fd")

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, step, full)
        write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_text() == "old" and os.listdir(tmp_path) == ["a"]
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_folder_that_cannot_be_flushed_is_told_apart(tmp_path, monkeypatch):
    number = errno.EIO

    def fails(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(number, "fails")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(atomic_file.NotDurable):
        atomic_file.write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    number = errno.EINVAL  # a file system that has no such flush
    atomic_file.write(tmp_path / "a", b"newer")
    assert (tmp_path / "a").read_bytes() == b"newer"


def test_a_locked_file_has_its_lock_before_its_name(tmp_path, monkeypatch):
    taken, replace = [], os.replace

    def named(source, target, **options):
        taken.append(file_lock.is_taken(source))
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", named)
    handle = atomic_file.write_locked(tmp_path / "a", b"new")
    assert taken == [True] and file_lock.is_taken(tmp_path / "a")
    os.close(handle)
    assert not file_lock.is_taken(tmp_path / "a")


def test_a_file_is_claimed_once_and_removed(tmp_path):
    (tmp_path / "a").write_text("x")
    with atomic_file.claim(tmp_path / "a") as path:
        assert os.path.basename(path).startswith(".") and not (tmp_path / "a").exists()
        with pytest.raises(FileNotFoundError), atomic_file.claim(tmp_path / "a"):
            pass
    assert os.listdir(tmp_path) == []


def test_records_that_must_survive_a_power_cut_do(tmp_path, steps, monkeypatch):
    monkeypatch.setattr(mount_guard, "FOLDER", str(tmp_path / "mounts"))
    monkeypatch.setattr(request, "JOURNALS", str(tmp_path / "journals"))
    session = request.BackupSession("web1", "u", "i", "/scratch", True)
    for folder, write in {
        "moved": lambda: departures.record_departure("web1", "hv2", str(tmp_path / "moved")),
        "marks": lambda: maintenance.write("disks", path=tmp_path / "marks" / "m"),
        "mounts": lambda: mount_guard._write("/srv"),
        "journals": lambda: request.BackupJournal("web1").write(session),
        "master": lambda: private.write(str(tmp_path / "master" / "x"), "{}"),
    }.items():
        steps.clear()
        write()
        assert [kind for kind, _ in steps] == ["sync", "name", "sync"], folder
        assert steps[-1] == ("sync", folder)
